//! Addresses in a world where controllers die between any two writes; forwarding against a model of the kernel.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod book;
mod crashes;
mod encryption;
mod forwarding;
mod restore;
mod server;
