//! What every service needs around its core: certificates and TLS set-up.

pub mod ca;
pub mod client;
mod pinned;
pub mod tls;
