//! The guest kernel: what it must be able to do, how it is built, and where a ready one comes from.
//!
//! * [`config`]: small commented fragments, and the check that a build silently dropped none of their options.
//! * [`build`]: from the distribution's source package or a tarball; same source, same bytes.
//! * [`fetch`]: the distribution's cloud kernel with a tiny initramfs that holds the modules a VM needs; seconds.
//! * [`mirror`]: the kernels that are known with their SHA-256, from any mirror of Debian.
//! * [`store`]: kernels on this machine, each with a manifest.
//!
//! Runs the distribution's tools (`make`, `tar`, `apt-get`) as processes and cleans up after itself.

pub mod build;
pub mod config;
mod error;
pub mod fetch;
pub mod initramfs;
pub mod mirror;
pub mod module;
mod package;
mod packing;
mod run;
pub mod source;
pub mod store;
pub mod vmlinux;

pub use error::Error;

/// Receives the progress of long work; the command line shows it.
pub trait Progress {
    fn begin(&self, step: &str, detail: &str);
    /// One line of a tool's output, for verbose display.
    fn line(&self, line: &str);
    /// The step that was begun last has ended well.
    fn end(&self, detail: &str);
    /// Something a person should know.
    fn note(&self, text: &str);
}

#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _: &str, _: &str) {}
    fn line(&self, _: &str) {}
    fn end(&self, _: &str) {}
    fn note(&self, _: &str) {}
}
