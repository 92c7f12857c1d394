//! A device plugin of the kubelet: runner pods get `/dev/kvm`, `/dev/net/tun` and `/dev/vhost-net` of their node
//! without being privileged, by requesting the resources `neonvm/kvm`, `neonvm/tun` and `neonvm/vhost-net`.
//!
//! ```text
//! kubelet ◀── Register ── plugin        one registration and one socket for each resource
//! kubelet ── ListAndWatch ──▶ plugin    how many VMs the node can give the device to
//! kubelet ── Allocate ──▶ plugin        the device's file for one container
//! ```
//!
//! A runner is no root, so it gets device files that every user may open: see `files`.
//!
//! The devices are not used up: each resource has [`offer::SLOTS`] units. What is offered is decided in [`offer`], from what
//! the node has; the rest is the kubelet's interface, version `v1beta1`.

mod api;
mod connection;
mod files;
pub mod offer;
mod plugin;
mod probes;
mod registration;
mod run;

pub use run::{Config, Error, run};
