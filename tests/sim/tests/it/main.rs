//! Simulated worlds in which every invariant must hold, and the program that shows them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod big;
mod common;
mod compare;
mod planted;
mod program;
mod regressions;
mod replays;
mod seeds;
mod takeovers;
mod tools;
