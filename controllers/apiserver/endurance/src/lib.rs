//! Endurance tests of the embedded API server.
//!
//! [`kill`] kills it repeatedly under load and checks that acknowledged writes survive; [`hostile`] runs hostile clients while
//! a well-behaved one continues to work; [`chaos`] sets its fault switches under a watcher that has to stay right.
//! Nothing here asserts a time: only that things happen, before generous deadlines that turn a hang into a failure.

pub mod chaos;
pub mod hostile;
pub mod kill;
pub mod serve;

pub(crate) mod random;
pub(crate) mod raw;
