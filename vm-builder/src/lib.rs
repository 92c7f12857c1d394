//! Container image to bootable VM disk, without a daemon.

pub mod cache;
pub mod layer;
pub mod push;
pub mod reference;
pub mod registry;
pub mod source;
pub mod store;
