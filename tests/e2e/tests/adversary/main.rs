//! Attacks against a local cluster of real programs, one module for each finding. What can be shown in a process of a test is
//! shown there; here is what needs the whole.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers of tests"
)]

mod cluster;
mod home;
mod scrapes;
mod state;
mod terminal;
