//! What is done with values before rules judge them.

mod body;
mod clients;
mod corpus;
mod dialects;
mod forms;
mod injection;
mod parts;
mod scan;
mod transform;
