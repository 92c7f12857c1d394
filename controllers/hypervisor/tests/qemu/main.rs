//! Real machines: QEMU with a kernel and a program of some lines as its only process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers of tests fail by panicking, and one prints for its parent"
)]

mod accelerator;
mod cpu;
mod disks;
mod lab;
mod life;
mod memory;
mod migration;
mod safety;
mod stored;
mod walker;
