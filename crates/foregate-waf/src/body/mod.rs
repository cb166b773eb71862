//! Bodies of requests and responses, taken apart to names and values.
