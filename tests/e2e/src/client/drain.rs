//! Emptying a node by evictions.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use super::{Error, KubeClient, Resource};

/// Pause between two evictions of a pod, as in `kubectl drain`, but shorter: what answers is on this host.
const PAUSE: Duration = Duration::from_secs(1);

/// What came of a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drain {
    /// Whether no pod is left on the node.
    pub is_empty: bool,
    /// Why evictions were refused (429), each reason once.
    pub refusals: BTreeSet<String>,
}

impl KubeClient {
    /// Requests the eviction of a pod.
    ///
    /// # Errors
    /// If it is refused (429), the pod is not there (404), or the request failed.
    pub fn evict(&self, pod: &str) -> Result<(), Error> {
        let path = format!("{}/eviction", Resource::POD.path(&self.namespace, pod));
        let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": { "name": pod, "namespace": self.namespace } });
        self.send(Method::POST, &path, Some(("application/json", &eviction))).map(drop)
    }

    /// Cordons a node and evicts its pods, again and again, until none is left or the time is up.
    ///
    /// # Errors
    /// If a request fails in another way than that an eviction is refused.
    pub fn drain(&self, node: &str, limit: Duration) -> Result<Drain, Error> {
        self.cordon(node)?;
        let deadline = Instant::now() + limit;
        let mut drain = Drain::default();
        loop {
            let pods = self.list_with_field(Resource::POD, &format!("spec.nodeName={node}"))?;
            drain.is_empty = pods.is_empty();
            if drain.is_empty {
                return Ok(drain);
            }
            let text =
                |pod: &Value, pointer: &str| pod.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            let remaining = pods.iter().filter(|pod| text(pod, "/metadata/deletionTimestamp").is_none());
            for name in remaining.filter_map(|pod| text(pod, "/metadata/name")) {
                match self.evict(&name) {
                    Err(Error::Refused { code: 429, message }) => drop(drain.refusals.insert(message)),
                    // The controller is being started again: an administrator repeats `kubectl drain` then.
                    Err(Error::Refused { code: 500, message })
                        if message.contains("failed calling webhook") =>
                    {
                        drain.refusals.insert(message);
                    }
                    Err(error) if error.is(404) => {}
                    other => other?,
                }
            }
            if Instant::now() >= deadline {
                return Ok(drain);
            }
            std::thread::sleep(PAUSE);
        }
    }
}
