//! What is done with values before rules judge them.

mod scan;
mod transform;
