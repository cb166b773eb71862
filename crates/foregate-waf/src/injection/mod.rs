//! SQL injection and cross-site scripting, found by tokens rather than patterns.
