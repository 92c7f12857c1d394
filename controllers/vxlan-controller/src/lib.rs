//! The overlay network of one node: a bridge, a tunnel to all other nodes, and the tunnel's forwarding table.
//!
//! Watches of nodes and VMs give the desired state ([`neonvm_core_overlay::forwarding`]); netlink gives the observed state. When
//! either changes, the difference is applied. Nothing is sent otherwise, and while the API server is unreachable everything stays
//! as it is. The kernel learns no forwarding, and tables of our own bound whose packets and frames are taken (`guard`).
//!
//! ```text
//!   pod ── net1 ─┐                                   ┌─ net1 ── pod
//!   pod ── net1 ─┤ neon-br0 ── neon-vxlan0 ═══ … ═══ neon-vxlan0 ── neon-br0
//! ```
//!
//! With [`Encryption::Wireguard`] tunnels connect addresses of WireGuard interfaces, which are reachable through WireGuard only
//! ([`neonvm_core_overlay::encryption`]); each node publishes its key in a lease.

mod config;
mod guard;
mod kernel;
mod keys;
mod metrics;
mod namespace;
mod nat;
mod netlink;
mod nft;
mod run;
mod sync;
mod watch;
mod wireguard;

pub use config::{Config, Encryption};
pub use neonvm_core_overlay::encryption::PORT as ENCRYPTION_PORT;
pub use run::{Error, delete, run};
