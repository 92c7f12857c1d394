//! The overlay network of one node: a bridge, a tunnel to all other nodes, and the tunnel's forwarding table.
//!
//! Watches of nodes and machines say what should be ([`neonvm_core_overlay::forwarding`]); netlink says what is. Whenever
//! one of them changes the difference is carried out, and nothing else ever is: at rest there is no traffic, and while the
//! API server is away everything stays as it is.
//!
//! ```text
//!   pod ── net1 ─┐                                   ┌─ net1 ── pod
//!   pod ── net1 ─┤ neon-br0 ── neon-vxlan0 ═══ … ═══ neon-vxlan0 ── neon-br0
//! ```
//!
//! With [`Encryption::Wireguard`] the tunnels go between addresses of WireGuard interfaces, which nothing else leads to
//! ([`neonvm_core_overlay::encryption`]); each node publishes its key in a lease of its own.

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
