//! The agent against the embedded API server and peers that misbehave. Traffic stays on the loopback interface.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "helpers of tests"
)]

mod cluster;
mod config;
mod exporters;
mod guest;
mod hostile_metrics;
mod hostile_monitor;
mod hostile_scheduler;
mod informant;
mod informants;
mod leases;
mod monitor;
mod objects;
mod real_guests;
mod scheduler;
mod supervision;
mod web;
mod whole;
mod world;
