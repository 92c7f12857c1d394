//! The two runners of a migration in every order of events, and the phases of its object against a world that forgets, lags
//! and dies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod history;
#[path = "../../../vm-lifecycle/tests/it/machine.rs"]
mod machine;
mod phases;
mod runners;
mod targets;
