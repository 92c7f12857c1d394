//! Counters of the guest's TCP traffic with addresses beyond the cluster, for `spec.enableNetworkMonitoring`. The node service reads
//! them: the kernel reports them only to processes with `NET_ADMIN`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use neonvm_types::node_protocol::Traffic;
use tokio::sync::Mutex;

use super::{Error, Node};

/// An answer, or its failure, is repeated for so long: clients without a certificate may ask.
const FRESH: Duration = Duration::from_secs(1);

/// Reads the counters.
#[derive(Debug)]
pub(crate) struct Meter {
    node: Arc<Node>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the node was asked the last time, whatever came of it.
    asked: Option<Instant>,
    reading: Reading,
}

/// What a scrape gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The last counters that were read.
    pub(crate) traffic: Traffic,
    /// How often they could not be read.
    pub(crate) errors: u64,
}

impl Meter {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node, state: Mutex::default() }
    }

    /// The counters, at most [`FRESH`] old; if they cannot be read, the last ones, with one error more.
    pub(crate) async fn read(&self) -> Reading {
        let mut state = self.state.lock().await;
        if state.asked.is_none_or(|at| at.elapsed() >= FRESH) {
            let node = Arc::clone(&self.node);
            let asked = tokio::task::spawn_blocking(move || node.traffic()).await;
            match asked.unwrap_or_else(|error| Err(Error::Refused(error.to_string()))) {
                Ok(traffic) => state.reading.traffic = traffic,
                Err(error) => {
                    tracing::warn!(%error, "the network counters cannot be read");
                    state.reading.errors += 1;
                }
            }
            state.asked = Some(Instant::now());
        }
        state.reading
    }
}
