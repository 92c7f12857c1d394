//! The one static program inside every VM.

pub mod daemon;
pub mod shell;
pub mod ssh;
