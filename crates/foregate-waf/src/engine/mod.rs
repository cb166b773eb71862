//! Rules compiled to a plan, and transactions that follow it.
