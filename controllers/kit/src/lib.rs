//! What every service needs around its core: certificates, TLS set-up, a small HTTP server and client, leader election,
//! finding one another, watches, a queue of work, and events.

pub mod authority;
pub mod ca;
pub mod call;
pub mod client;
pub mod event;
pub mod http;
pub mod join;
pub mod lease;
mod pinned;
pub mod queue;
pub mod service;
pub mod tls;
mod unchecked;
pub mod watch;
