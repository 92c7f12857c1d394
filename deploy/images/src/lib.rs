//! The container images of services and runner, as `cargo xtask images` builds them from the Containerfiles beside this crate into an
//! OCI image layout. [`release`] is what `neonctl image release` knows of such a layout.

mod error;
pub mod release;

pub use error::Error;
