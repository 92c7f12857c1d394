//! The replica autoscaler against a real API server and real listeners that simulate pods.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod cluster;
mod conflicts;
mod fleet;
mod hostile;
mod invalid;
mod metrics_apis;
mod metrics_server;
mod outage;
mod roles;
mod scaling;
mod supervision;
mod webhooks;
mod wrapped;
