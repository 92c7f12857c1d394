//! The two ends of a move as pure state machines: [`source::Source`] drives, [`target::Target`] follows.
//!
//! The law of both: a target's guest runs only after its source has said that its own never will again, or after a verdict
//! that the source is gone for good; a source that has said so runs its guest again only after a verdict that the target
//! is gone for good. The states are drawn in `neonvm_types::runner_protocol`.

pub(crate) mod source;
pub(crate) mod target;
#[cfg(test)]
mod tests;

pub(crate) use source::Source;
pub(crate) use target::Target;

/// Why a call cannot be followed now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) String);
