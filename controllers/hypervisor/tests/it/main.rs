//! Real machines: QEMU with a kernel and a program of some lines as its only process. And a fake QEMU for what a real
//! one rarely does.
//!
//! What is missing (QEMU, a kernel, a compiler, root) makes a test print why it is skipped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers of tests fail by panicking and say on standard output what they skip"
)]

mod accelerator;
mod cpu;
mod disks;
mod fake;
mod lab;
mod life;
mod memory;
mod migration;
mod qmp;
mod safety;
mod walker;
