//! How large a VM should be, and how it gets there.
//!
//! [`agent`] is the half that runs beside each VM's node: it turns metrics into a goal and brings scheduler,
//! machine and guest there in an order that never takes what is in use. [`monitor`] is the half inside the
//! guest: it decides when to request more and which smaller sizes to consent to. Neither uses a clock, a
//! socket or a file.
//!
//! ```
//! # #[cfg(feature = "agent")] {
//! use neonvm_core_vertical_scaling::agent::units;
//! use neonvm_types::{Bytes, MilliCpu, Resources};
//!
//! let unit = Resources { vcpus: MilliCpu::new(250), mem: Bytes::gib(1) };
//! let used = Resources { vcpus: MilliCpu::new(600), mem: Bytes::gib(1) };
//! assert_eq!(units::ceil(used, unit), 3, "whole compute units that contain both");
//! # }
//! ```

#[cfg(feature = "agent")]
pub mod agent;
pub mod monitor;
