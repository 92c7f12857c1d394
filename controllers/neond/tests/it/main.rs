//! The manifests of a real cluster, held against the programs they start.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

mod available;
mod cluster;
mod history_dir;
mod manifests;
mod node;
mod policies;
mod runner;
mod service;
mod takeover;
