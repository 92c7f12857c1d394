//! VMs from the outside: disks that boot, and VMs on local clusters, with the real programs, real guests and real failures.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stdout,
    reason = "helpers of tests"
)]

mod cgroup;
mod cluster;
mod database;
mod dirty;
mod disk;
mod down;
mod drain;
mod draining;
mod ends;
mod engine;
mod firewall;
mod frozen;
mod grown;
mod kubectl;
mod kuttl;
mod limits;
mod machine;
mod migration;
mod monitoring;
mod observe;
mod overlay;
mod pause;
mod power;
mod pull;
mod restore;
mod scaling;
mod scenarios;
mod shapes;
mod sizes;
mod streams;
mod survival;
mod suspend;
mod volumes;
