//! The connection to QEMU's monitor, with a fake QEMU for what a real one rarely does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

mod fake;
mod qmp;
