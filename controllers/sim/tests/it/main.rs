//! Worlds that have to hold.

mod common;
mod storms;
