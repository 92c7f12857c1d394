//! `image`

pub(super) mod export;
pub(super) mod inspect;
pub(super) mod list;
pub(super) mod prune;
pub(super) mod push;
pub(super) mod remove;
mod usage;
