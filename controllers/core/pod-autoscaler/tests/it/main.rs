//! Replica autoscaling from the outside of the crate: published numbers, flows, laws.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    reason = "these are tests"
)]

mod apa;
mod claims;
mod decisions;
mod examples;
mod faults;
mod kpa;
mod laws;
mod statuses;
mod windows;
mod world;
mod wrapped;
