//! Real boots in QEMU with the distribution's cloud kernel: this crate's program as initramfs and as init of a small disk.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers of tests fail by panicking"
)]

#[cfg(target_arch = "x86_64")]
mod boot;
mod engine;
#[cfg(target_arch = "x86_64")]
mod informant;
#[cfg(target_arch = "x86_64")]
mod lab;
#[cfg(target_arch = "x86_64")]
mod limits;
#[cfg(target_arch = "x86_64")]
mod machine;
#[cfg(target_arch = "x86_64")]
mod monitor;
#[cfg(target_arch = "x86_64")]
mod plain;
#[cfg(target_arch = "x86_64")]
mod runner;
