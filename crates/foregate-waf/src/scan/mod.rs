//! Patterns, the literals that they require, and one automaton over many of those.
