//! Container image to bootable VM disk, without a daemon.
//!
//! [`source`] loads an image from a registry, an archive or a directory into a tree that was never unpacked to the
//! host; [`engine`] adds the guest and writes the disk with `neonvm-disk`. The only part that needs another program
//! is [`fragments`]: Dockerfile text of a specification is carried out by buildah.

mod accounts;
pub mod attributes;
pub mod cache;
pub mod content;
mod dockerfile;
pub mod engine;
pub mod export;
pub mod file_image;
pub mod fragments;
pub mod inittab;
pub mod inject;
pub mod inspect;
pub mod layer;
pub mod out;
pub mod pull;
pub mod push;
pub mod record;
pub mod reference;
pub mod registry;
pub mod save;
pub mod sbom;
pub mod size;
pub mod source;
pub mod spec;
pub mod store;
pub mod tool;
