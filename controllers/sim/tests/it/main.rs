//! Worlds that have to hold.

mod big;
mod common;
mod planted;
mod replay;
mod storms;
