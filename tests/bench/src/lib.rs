//! Measures the service level objectives of SPEC.md.
//!
//! [`process`] starts a server as a child process and reads what the kernel knows about it, [`measure`] has the measurements,
//! [`report`] prints each row beside its goal as soon as it is measured. Numbers are taken over TLS with the client that the
//! controllers use, client and server on the same host, so they include the client's share of the processors.

pub mod fleet;
pub mod measure;
pub mod process;
pub mod report;
mod service;
