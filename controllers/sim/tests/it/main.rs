//! Worlds that have to hold.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod big;
mod common;
mod compare;
mod planted;
mod regressions;
mod replay;
mod seeds;
mod takeovers;
mod tools;
