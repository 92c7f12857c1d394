//! What every service needs around its core: certificates, TLS set-up, a small HTTP server and client, leader election,
//! supervision of background tasks, service lookup, watches, a work queue, metrics, events, and admission webhooks.

pub mod administrator;
pub mod anchors;
pub mod authority;
pub mod backoff;
pub mod ca;
pub mod call;
pub mod certificate;
pub mod client;
pub mod descriptors;
pub mod error;
pub mod event;
pub mod expiry;
pub mod http;
pub mod join;
pub mod lease;
pub mod metrics;
mod pem;
mod pinned;
pub mod places;
pub mod port;
pub mod private;
pub mod queue;
pub mod reserve;
pub mod service;
mod shown;
pub mod signer;
mod subject;
pub mod supervise;
pub mod termination;
pub mod tls;
pub mod trust;
mod unchecked;
pub mod validity;
pub mod watch;
pub mod watch_metrics;
pub mod webhook;
