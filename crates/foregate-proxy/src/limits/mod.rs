//! The resources that peers make the process hold, and the bounds on them: connections, memory, descriptors and files, each on
//! the account of a client.

pub mod account;
mod adaptive;
pub mod budget;
pub mod buffer_size;
pub mod client_table;
pub mod clients;
pub mod descriptors;
pub mod gates;
pub mod lanes;
pub mod pressure;
pub mod spool;
