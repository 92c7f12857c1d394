//! Worlds that have to hold.

mod common;
mod replay;
mod storms;
