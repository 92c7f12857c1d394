//! Devices: what the kernel announces, what is on the disks, links under `/dev`, the power button, serial ports.

pub mod block;
pub mod links;
pub mod port;
pub mod power_button;
pub mod superblock;
pub mod uevent;

pub use block::BlockDevice;
pub use superblock::Superblock;
pub use uevent::Uevent;
