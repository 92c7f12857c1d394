//! Controllers in network namespaces of the test's own, against the embedded API server: what is made, what is repaired,
//! what goes, and that packets arrive.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

mod attacks;
mod lab;
mod mesh;
mod repair;
mod wireguard;
