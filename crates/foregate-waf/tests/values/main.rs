//! What is done with values before rules judge them.

mod body;
mod clients;
mod corpus;
mod forms;
mod injection;
mod scan;
mod transform;
