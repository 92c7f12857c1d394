//! The overlay network as pure functions: who has which address, and where frames go.
//!
//! For: the vm-controller (addresses), the vxlan-controller (forwarding), simulations of both.
//! Owns: the format of pools ([`book`]), the reading of IPAM settings ([`settings`]), the plan of a node's tunnel
//! ([`forwarding`]), and of its encryption ([`encryption`]).
//! May not: read a clock, talk to an API server or the kernel. Time is an argument, in seconds.
//!
//! An address is whose the pools say it is: it is written into its pool before anybody is told of it, and every write is
//! guarded by the version that was read. So it is never given twice, wherever a controller dies and however many there are.

pub mod book;
pub mod encryption;
pub mod forwarding;
mod net;
pub mod settings;

pub use book::{Book, Lease, PoolVersion, PoolWrite, Refusal};
pub use net::{Family, Net, NotANet};
pub use settings::{Range, Settings, SettingsError};
