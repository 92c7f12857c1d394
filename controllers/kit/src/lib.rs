//! What every service needs around its core: certificates, TLS set-up, a small HTTP server, leader election.

pub mod ca;
pub mod client;
pub mod http;
pub mod lease;
mod pinned;
pub mod tls;
