//! The controller against a real API server, with a fake node and fake runners.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

mod addresses;
mod agents;
mod certificates;
mod cluster;
mod disks;
mod evictions;
mod failures;
mod growth;
mod handover;
mod leader;
mod life;
mod moves;
mod node;
mod paused;
mod policy;
mod runner;
mod signing;
mod size;
mod supervision;
mod webhooks;
