//! What every service needs around its core: certificates, TLS set-up, a small HTTP server and client, leader election,
//! and finding one another.

pub mod authority;
pub mod ca;
pub mod call;
pub mod client;
pub mod http;
pub mod lease;
mod pinned;
pub mod service;
pub mod tls;
