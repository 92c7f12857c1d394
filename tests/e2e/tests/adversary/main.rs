//! Attacks on a local cluster of real programs, each by a real attacker: a module for each finding of a review. What can be shown
//! in a process of a test is shown there; here is what needs the whole.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers of tests"
)]

mod attacker;
mod authority;
mod cluster;
mod home;
mod ports;
mod scrapes;
mod sockets;
mod state;
mod strangers;
mod terminal;
