//! Measures the service level objectives of the embedded API server: throughput, delay of watches, memory, start, idle load.
//!
//! [`process`] starts a server as a child process and reads what the kernel knows about it; [`measure`] holds the
//! measurements; [`report`] prints them beside their goals. Numbers are taken over TLS with the client that the
//! controllers use, client and server on the same machine, so they include the client's share of the processors.

pub mod fleet;
pub mod measure;
pub mod process;
pub mod report;
mod service;
