//! Real runners with real guests: two processes, two directories, loopback addresses, and a VM that is migrated between
//! them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::exit,
    reason = "helpers of tests fail by panicking and print what they skip on standard output"
)]

mod faults;
mod lab;
mod link;
mod links;
mod moves;
mod network;
mod process;
mod rights;
mod runner;
mod world;
