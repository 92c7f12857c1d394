//! qcow2, written and read. Format: QEMU's `docs/interop/qcow2.txt`.

mod check;
mod error;
mod head;
mod read;
mod write;

pub use error::Error;
pub use read::{Check, Reader};
pub use write::write;
