//! Registries: fetching manifests and layers, and pushing them (Docker Registry HTTP API V2, OCI distribution 1.1).
//!
//! This is written on top of `reqwest` and not of `oci-client` (0.18), each request of which loses a guarantee: it hides
//! status and `Retry-After` of a refusal, reads answers of any size into memory, follows from TLS to plain HTTP and follows
//! any token service with the password; a pushed digest and an answer without a location make it panic.
//! Challenges are read by the parser that it uses, too: `http-auth`.
//!
//! Whatever is fetched is checked against its digest before anything uses it. Transport failures, 429 and 5xx are
//! tried again with growing pauses; everything else fails at once. Nothing waits without a deadline.

mod auth;
mod challenge;
mod client;
mod config;
mod credentials;
mod failure;
mod manifest;
mod pace;
mod pull;
mod transfer;
mod transport;
mod upload;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

pub(crate) use client::Client;
pub(crate) use config::ImageConfig;
pub use credentials::auth_files;
pub(crate) use manifest::{Document, IndexEntry, Manifest, choose, note};
pub(crate) use pull::Puller;
