//! qcow2, written and read. Format: QEMU's `docs/interop/qcow2.txt`.

mod check;
mod error;
mod head;
mod pack;
mod plan;
mod read;
mod write;

pub use error::Error;
pub use plan::{Compression, Options};
pub use read::{Check, Info, Reader};
pub use write::{Summary, write};
