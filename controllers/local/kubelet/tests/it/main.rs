//! The node against the embedded API server, with shell scripts in place of runners.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod adoption;
mod kubectl;
mod life;
mod lifecycle;
mod network;
mod own_root;
mod resize;
mod server;
mod stop;
mod support;
mod volumes;
