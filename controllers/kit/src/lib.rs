//! What every service needs around its core: certificates and TLS set-up.

pub mod ca;
mod pinned;
pub mod tls;
