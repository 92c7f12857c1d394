//! The agent's half from outside: the vectors of the specification, its known defects, and invariants.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, unreachable_pub)]

mod announced;
mod defects;
mod dsl;
mod flows;
mod holds;
mod informant;
mod laws;
mod metrics;
mod paused;
mod peers;
mod rules;
mod shapes;
mod upstream;
mod vectors;
mod world;
