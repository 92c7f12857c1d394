//! Metrics of a local cluster's services, with `--metrics`: each is served at a port of 127.0.0.1, which is reserved for it as long as
//! the cluster runs. `metrics.json` in the cluster's directory lists them as Prometheus' `file_sd_configs` take them, with the labels
//! that the scrape configuration of an installation gives. Any user of this host can read them, so they are off by default.

use std::path::Path;

use anyhow::Context as _;
use neonvm_api::names::SYSTEM_NAMESPACE;
use neonvm_kit::port::Reserved;
use neonvm_kit::private;
use neonvm_kit::reserve::Reserve;
use serde_json::{Value, json};

use super::Flags;

/// Name of the list in the cluster's directory.
const FILE: &str = "metrics.json";
/// Flag of every service; agents have another one for the metrics of VMs.
pub(super) const OWN: &str = "--metrics-bind-address";
/// The agent's flag for the metrics of VMs.
pub(super) const OF_VMS: &str = "--vm-metrics-bind-address";

/// Where the services serve.
pub(super) struct Metrics {
    are_served: bool,
    targets: Vec<Target>,
}

struct Target {
    address: Reserved,
    /// As in the scrape configuration of an installation, such as `neonvm-agent-vms`.
    job: String,
    /// Name of the service in the cluster, such as `agent-n1`.
    service: String,
    node: Option<String>,
}

impl Metrics {
    pub(super) const fn new(are_served: bool) -> Self {
        Self { are_served, targets: Vec::new() }
    }

    /// Adds the flag to those of a service, if metrics are served.
    ///
    /// # Errors
    /// If no port is left.
    pub(super) fn serve(
        &mut self,
        flags: Flags,
        flag: &str,
        (job, service, node): (&str, &str, Option<&str>),
    ) -> anyhow::Result<Flags> {
        if !self.are_served {
            return Ok(flags);
        }
        let address =
            Reserved::loopback().with_context(|| format!("no port for the metrics of {service}"))?;
        let flags = flags.set(flag, &address.address());
        let (job, service) = (job.to_owned(), service.to_owned());
        self.targets.push(Target { address, job, service, node: node.map(str::to_owned) });
        Ok(flags)
    }

    /// Writes the list, or removes that of an earlier start.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn publish(&self, directory: &Path) -> anyhow::Result<()> {
        let path = directory.join(FILE);
        if !self.are_served {
            // There is none, mostly.
            let _ = std::fs::remove_file(&path);
            return Ok(());
        }
        let text = self.document().to_string();
        Reserve::from_directory(directory)
            .lend(|| private::replace(&path, text.as_bytes()))
            .with_context(|| format!("cannot make {}", path.display()))
    }

    fn document(&self) -> Value {
        let target = |target: &Target| {
            let mut labels = json!({"job": target.job, "namespace": SYSTEM_NAMESPACE, "pod": target.service});
            if let (Some(node), Value::Object(labels)) = (&target.node, &mut labels) {
                labels.insert("node".to_owned(), json!(node));
            }
            json!({"targets": [target.address.address().to_string()], "labels": labels})
        };
        self.targets.iter().map(target).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_an_address_and_labels_for_each_service() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let start = || Flags(vec!["neond".to_owned()]);
        let mut metrics = Metrics::new(true);
        let scheduler = metrics.serve(start(), OWN, ("neonvm-scheduler", "scheduler", None)).unwrap();
        let agent = metrics.serve(start(), OF_VMS, ("neonvm-agent-vms", "agent-n1", Some("n1"))).unwrap();
        metrics.publish(directory.path()).unwrap();
        let list: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(
            list,
            json!([
                {"targets": [scheduler.0[2]],
                    "labels": {"job": "neonvm-scheduler", "namespace": "neonvm-system", "pod": "scheduler"}},
                {"targets": [agent.0[2]],
                    "labels": {"job": "neonvm-agent-vms", "namespace": "neonvm-system", "pod": "agent-n1", "node": "n1"}},
            ])
        );
        assert_eq!((&*scheduler.0[1], &*agent.0[1]), (OWN, OF_VMS));
        assert_ne!(scheduler.0[2], agent.0[2]);

        let mut off = Metrics::new(false);
        let flags = off.serve(start(), OWN, ("neonvm-scheduler", "scheduler", None)).unwrap();
        assert_eq!(flags.0, ["neond"]);
        off.publish(directory.path()).unwrap();
        assert!(!path.exists(), "a list of an earlier start leads nowhere");
    }
}
