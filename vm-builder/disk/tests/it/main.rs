//! Disks judged by programs that are not ours.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

mod ext4;
mod qcow2;
mod small;
mod support;
