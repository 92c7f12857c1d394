//! The scheduler at 1,000 nodes and 20,000 VMs: its core alone, and the service over the embedded API server.

mod core;
mod service;

use super::Setup;
use crate::report::Rows;

/// Name for `--only`.
const NAME: &str = "scheduler";
const NODES: usize = 1_000;
const VMS: usize = 20_000;

pub(super) async fn run(setup: &Setup, rows: &mut Rows) -> anyhow::Result<()> {
    // Nothing else runs meanwhile.
    tokio::task::block_in_place(|| self::core::run(rows))?;
    service::run(setup, rows).await
}

fn node(number: usize) -> String {
    format!("node-{:04}", number % NODES)
}

fn pod(number: usize) -> String {
    format!("compute-endpoint-{:05}-abcde", number % VMS)
}

/// Whole compute units that a VM asks for in a round: up and down.
fn wanted(round: usize, at: usize) -> u64 {
    1 + (round as u64 * 7 + at as u64) % 8
}
