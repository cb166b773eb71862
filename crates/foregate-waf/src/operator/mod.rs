//! Operators: what a value is compared with.
