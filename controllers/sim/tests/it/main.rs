//! Worlds that have to hold.

mod big;
mod common;
mod planted;
mod regressions;
mod replay;
mod storms;
mod tools;
