//! What fuzzers share: randomness that is given by a seed, hostile values, and which seeds run.
//!
//! A fuzzer runs in rounds. A round is given by its role, its seed and its number of cases, so that it can be repeated; what it did
//! to the system is checked after it. Rounds that found something once are lines of `tests/e2e/fuzz-seeds.txt`, which every run
//! repeats first.

mod random;
mod rounds;
mod schema;
mod value;
mod wire;

pub use self::random::Random;
pub use self::rounds::{Round, SECONDS, rounds};
pub use self::schema::instance;
pub use self::value::{hostile, mutate, text};
pub use self::wire::{Request, body, frames, request};
