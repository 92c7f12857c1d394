//! The node service: the only part of the product that has rights on a node. A runner opens nothing of its node; what its VM needs is
//! made here and handed over as open files, through a socket in the runner's pod.
//!
//! ```text
//! kubelet ── Allocate ──▶ device plugin    the pod gets /dev/kvm, /dev/vhost-net and the directory of the socket
//! runner  ── request  ──▶ service          who is it: the process at the other end, its pod, the VM of the API
//!                         decision         pure: what this pod gets, or why it gets nothing
//!                         network          in the pod's network namespace: devices, addresses, rules, sockets
//!                         cpu              below the container's cgroup: one for the threads of the vCPUs
//! runner  ◀── files ──    service
//! ```
//!
//! * [`decision`] – from a pod and its VM to what is made for it. Pure.
//! * [`service`] – the socket, its callers, and their limits.
//! * `network` – makes what was decided, in the network namespace of the caller.
//! * `cpu` – the cgroup that holds the VM to a part of a CPU, below that of the caller's container.
//! * [`devices`] – the device plugin of the kubelet.
//!
//! The service holds no state: what it made lies in the pod's network namespace, below the cgroup of its container and in files that the
//! runner has open, and ends with them. A runner that runs does not notice its death, but for the counters of traffic.

mod cpu;
pub mod decision;
pub mod devices;
mod network;
pub mod service;

#[doc(hidden)]
pub use network::{Addresses, Interfaces, Overlay, copies, interfaces, join};
