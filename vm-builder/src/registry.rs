//! Registries: fetching manifests and layers, and pushing them (Docker Registry HTTP API V2, OCI distribution 1.1).
//!
//! This is written on top of `reqwest` and not of `oci-client` (0.18), which otherwise would do, because that one
//! hides the headers of failed answers, so that `Retry-After` cannot be honoured; cannot use identity tokens; reads
//! manifests of any size into memory; follows any token service with the password, also over plain HTTP; and needs
//! `chrono`, which this project bans.
//!
//! Whatever is fetched is checked against its digest before anything uses it. Transport failures, 429 and 5xx are
//! tried again with growing pauses; everything else fails at once. Nothing waits without a deadline.

mod auth;
mod challenge;
mod client;
mod config;
mod credentials;
mod failure;
mod helper;
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
pub(crate) use manifest::{Document, IndexEntry, Manifest, choose};
pub(crate) use pull::Puller;
