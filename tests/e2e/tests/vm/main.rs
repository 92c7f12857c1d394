//! Virtual machines on a local cluster, from the outside: the real programs, real guests, real failures.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers of tests, some of them for another lane"
)]

mod chaos;
mod chaos_moves;
mod cluster;
mod down;
mod drain;
mod ends;
mod kubectl;
#[path = "../disk/machine.rs"]
mod machine;
mod migration;
mod overlay;
mod replicas;
mod rootless;
mod scaling;
mod scenarios;
mod sizes;
mod survival;
