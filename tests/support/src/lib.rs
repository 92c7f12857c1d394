//! What tests of all crates share: the needs of a test, and waiting for a condition.
//!
//! A test that cannot run on this computer is skipped by [`need!`], which reports why to the test runner
//! (`tests/xtask/src/suite`). A test never returns early by itself: `cargo xtask check` refuses that, because libtest would
//! count it as passed.

#![allow(
    clippy::missing_panics_doc,
    clippy::expect_used,
    reason = "a panic fails the test that called, which is the purpose"
)]

pub mod guest;
pub mod lab;
pub mod lists;
pub mod needs;
mod process;
mod wait;

pub use needs::{Missing, Need};
pub use process::Running;
pub use wait::{
    Look, PATIENCE, eventually, eventually_blocking, eventually_blocking_within, eventually_within,
};

/// Evaluates to the value of a [`Need`]. If it is missing, the test ends here and is counted as skipped.
///
/// ```ignore
/// need!(needs::root());
/// let lab = need!(lab());
/// ```
#[macro_export]
macro_rules! need {
    ($need:expr) => {
        match $need {
            Ok(value) => value,
            Err(missing) => {
                let _: $crate::Missing = missing;
                return;
            }
        }
    };
}
