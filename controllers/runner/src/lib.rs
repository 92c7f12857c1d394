//! One VM: prepares disks and network, runs QEMU, serves the runner interface.
#![allow(dead_code)]
mod api;
pub mod client;
mod config;
mod console;
mod core;
mod guest;
pub mod logs;
mod network;
mod runtime;
mod volume;
