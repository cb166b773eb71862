//! The module: its settings and its steps in a pipeline.
