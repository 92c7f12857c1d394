//! The phase machine against tables and against a world that forgets, lags and dies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod address;
mod causes;
mod disks;
mod growth;
mod limits;
mod machine;
mod observations;
mod paused;
mod pod;
mod restricted;
mod sizes;
mod strings;
mod suspended;
mod table;
mod world;
