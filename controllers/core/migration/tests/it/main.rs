//! Both sides of a migration, in every order of events.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod moves;
