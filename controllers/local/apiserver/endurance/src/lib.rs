//! Endurance tests of the embedded API server.
//!
//! [`kill`] kills it repeatedly under load and checks that acknowledged writes survive. Nothing here asserts a time: only that things
//! happen, before generous deadlines that turn a hang into a failure.

pub mod kill;
pub mod serve;

pub(crate) mod random;
