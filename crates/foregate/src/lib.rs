//! What the `foregate` binary is made of, as a library for its tests and fuzz targets.
#![forbid(unsafe_code)]

pub mod config;
