//! Layers: tar archives that change a file tree one after another.
//!
//! [`Archive`] reads the headers of an uncompressed tar and locates the contents in it; [`Applier`] changes a
//! [`Tree`](neonvm_disk::tree::Tree) accordingly; [`LayerSources`] reads the contents later. Nothing is ever unpacked
//! to the file system of the host, so no entry, however named, can reach it: a path is resolved in the tree, where
//! `..` of a symbolic link ends at the root, and a name that would leave the root by itself is an error. What an
//! archive can cost is bounded by [`Limits`](crate::source::Limits).

mod apply;
mod archive;
mod fields;
mod files;
mod hide;
mod path;
mod pax;
mod sparse;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod writer;

pub use apply::{Applier, Whiteouts};
pub(crate) use archive::is_header;
pub use archive::{Archive, Entry, EntryKind};
pub use files::{HostFile, LayerSources};
pub(crate) use pax::TEXT_LIST;
pub use sparse::Run;
