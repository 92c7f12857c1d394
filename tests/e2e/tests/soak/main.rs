//! The long and the chaotic: the helpers of the test program `qemu`, used for longer.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers of tests, some of them for the other test program"
)]

mod chaos;
#[path = "../qemu/cluster.rs"]
mod cluster;
mod databases;
mod drain;
#[path = "../qemu/draining.rs"]
mod draining;
#[path = "../qemu/machine.rs"]
mod machine;
mod migration_chaos;
mod moves;
#[path = "../qemu/observe.rs"]
mod observe;
mod power_cut;
mod renewals;
mod replicas;
mod rootless;
mod sessions;
mod shapes;
