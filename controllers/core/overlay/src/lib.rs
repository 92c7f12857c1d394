//! The networks of VMs as pure functions: allocation of addresses and forwarding of frames on the overlay, and what guests do not reach.
//!
//! For: the vm-controller (addresses), the vxlan-controller (forwarding), simulations of both; the runner and the pod-autoscaler
//! (closed addresses).
//! Owns: the format of pools ([`book`]), the reading of IPAM settings ([`settings`]), the plan of a node's tunnel
//! ([`forwarding`]), and of its encryption ([`encryption`]), the list of closed addresses ([`closed`]).
//! May not: read a clock, talk to an API server or the kernel. Time is an argument, in seconds.
//!
//! The pools alone decide which VM has an address: it is written into its pool before it is returned to a caller, and every
//! write requires the version that was read. So no address is allocated twice, even with several controllers or after a crash.
//!
//! ```
//! use neonvm_core_overlay::{Book, Settings};
//!
//! // Released addresses rest for 60 s.
//! let mut book = Book::new(Settings::default(), 60);
//! let lease = book.acquire(0, "default/db", None).expect("there are addresses");
//! assert_eq!(book.acquire(1, "default/db", None), Ok(lease), "the same VM keeps it");
//! ```

pub mod book;
pub mod closed;
pub mod encryption;
pub mod forwarding;
mod net;
pub mod settings;

pub use book::{Book, Lease, PoolVersion, PoolWrite, RangeUsage, Refusal, Shared};
pub use net::{Family, Net, NotANet};
pub use settings::{Range, Settings, SettingsError};
