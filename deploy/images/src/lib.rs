//! Container images of the services and of the runner, without a container engine.
//!
//! ```text
//! recipe (YAML) ──▶ apt        packages of the recipe's release, in a root of apt's own
//!                    │
//!                    ▼
//!               packages       unpacked, each by itself; an index of all their files
//!                    │
//!                    ▼
//!                closure       the programs that are named, and the libraries that they need
//!                    │
//!                    ▼
//!          tree ──▶ layer      sorted, without times and owners of this computer, gzip
//!                    │
//!                    ▼
//!                  image       manifest, labels and list of contents, in an OCI image layout
//! ```
//!
//! [`release`] is the other end: what `neonctl image release` knows of such a layout.

pub mod apt;
pub mod build;
pub mod closure;
pub mod elf;
mod error;
pub mod layer;
pub mod licence;
pub mod packages;
pub mod recipe;
pub mod release;
pub mod spdx;
pub mod tree;

pub use error::Error;
