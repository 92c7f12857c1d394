//! Files behind disks. Each is made under another name and renamed when it is whole, so that what is there after a
//! restart can be used.

mod base;
mod empty;
mod error;
mod overlay;
mod persistent;
mod volume;
mod whole;

pub use base::{Base, inspect};
pub use empty::{EmptyDisk, empty, swap};
pub use error::DiskError;
pub use overlay::{overlay, overlay_size};
pub use persistent::{FILE as PERSISTENT_FILE, PersistentDisk, empty_copy, file_size, persistent};
pub use volume::{VolumeFile, volume};
