//! Ordinary sessions against the real services, with fake guests: the commands of a person, given to `neonctl`, and what must be true
//! after each of them. The sessions and the model are those of `neonvm_e2e::sessions`.
//!
//! `NEONVM_SESSION_SEED=N` runs that session alone, `NEONVM_SESSION_LENGTH` another number of commands; `NEONVM_SESSION_FRESH=N` runs
//! so many rounds of fresh sessions instead of the fixed ones.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::expect_used, reason = "tests")]

mod device;
mod guest;
mod node;
mod runner;
mod sessions;
mod world;
