//! The daemon, its metrics, the monitor, SSH and the shell, as processes of the program that goes into VMs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests"
)]

mod api;
mod forwards;
mod hostile;
mod informant;
mod limits;
mod metrics;
mod monitor;
mod postgres;
mod process;
mod ssh;
mod toolbox;
