//! The scheduler against the embedded API server. Traffic stays on the loopback interface.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests")]

mod agents;
mod extender;
mod leading;
mod placing;
mod supervision;
mod upstream;
mod world;
