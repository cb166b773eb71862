//! What is done with values before rules judge them.

mod injection;
mod scan;
mod transform;
