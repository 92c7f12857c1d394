//! The embedded API server on its worst days.
//!
//! [`kill`] kills it under load, over and over, and holds it to what it has acknowledged; [`hostile`] abuses it while a
//! well-behaved client goes on working; [`chaos`] sets its fault switches under a watcher that has to stay right.
//! Nothing here asserts a time: only that things happen, before generous deadlines that turn a hang into a failure.

pub mod chaos;
pub mod hostile;
pub mod kill;
pub mod serve;

pub(crate) mod random;
pub(crate) mod raw;
