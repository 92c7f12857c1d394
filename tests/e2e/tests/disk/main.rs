//! From a container image to a booted disk: the real programs, a real registry, real kernels, a real database.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stdout,
    reason = "helpers of tests"
)]

mod guest;
mod machine;
mod refusals;
mod registry;
mod workloads;
