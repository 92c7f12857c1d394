//! The fleet at rest: writes, memory and processor of each service, and the requests of agents meanwhile.

use std::time::Duration;

use super::leases::revision;
use super::services::{KINDS, Usage};
use super::{Cluster, NAME, mebibytes};
use crate::report::Row;

/// Until what follows the last start is over.
const SETTLE: Duration = Duration::from_secs(20);
/// Time that rest is measured over: two requests for each VM.
const REST: Duration = Duration::from_secs(30);

/// Counts at one time.
struct Counts {
    revision: u64,
    /// Renewals by agents and by services.
    leases: (u64, u64),
    /// Changes of VMs and of pods.
    changes: (u64, u64),
    usages: [Usage; 3],
}

impl Counts {
    async fn now(cluster: &Cluster) -> anyhow::Result<Self> {
        Ok(Self {
            revision: revision(&cluster.client).await?,
            leases: cluster.leases.renewals(),
            changes: (cluster.view.changes(), cluster.kubelets.changes()),
            usages: cluster.services.usages()?,
        })
    }
}

pub(super) async fn run(cluster: &Cluster) -> anyhow::Result<Vec<Row>> {
    tokio::time::sleep(SETTLE).await;
    let before = Counts::now(cluster).await?;
    cluster.agents.account.take();
    tokio::time::sleep(REST).await;
    let mut requests = cluster.agents.account.take();
    let after = Counts::now(cluster).await?;
    let seconds = REST.as_secs_f64();
    let each_second = |count: u64| count as f64 / seconds;
    let writes = after.revision - before.revision;
    let agents = after.leases.0 - before.leases.0;
    let services = after.leases.1 - before.leases.1;
    let vms = after.changes.0 - before.changes.0;
    let pods = after.changes.1 - before.changes.1;
    let mut rows = vec![
        Row::plain(NAME, "at rest: all writes to the API server", each_second(writes), "/s").note(format!(
            "leases of {} agents {:.1}/s, of services {:.1}/s; a kubelet renews its lease every 10 s, which is not simulated",
            cluster.nodes,
            each_second(agents),
            each_second(services)
        )),
        Row::at_most(NAME, "at rest: writes to VMs and pods", (vms + pods) as f64, "", 0.0)
            .note(format!("in {seconds} s; VMs {vms}, pods {pods}")),
        Row::plain(NAME, "at rest: requests for permits", each_second(requests.permits() as u64), "/s")
            .note(requests.failures()),
        Row::at_most(NAME, "at rest: a permit, p99", requests.quantile(0.99), "ms", 50.0)
            .note(format!("over mutual TLS, median {:.2} ms", requests.quantile(0.5))),
    ];
    for ((kind, before), after) in KINDS.iter().zip(before.usages).zip(after.usages) {
        let used = after.cpu.saturating_sub(before.cpu).as_secs_f64();
        let name = kind.name();
        rows.push(
            Row::plain(NAME, &format!("at rest: {name}, memory"), mebibytes(after.memory), "MiB").note(
                format!("{:.1} KiB for each VM", after.memory as f64 / 1024.0 / cluster.vms.max(1) as f64),
            ),
        );
        rows.push(
            Row::plain(NAME, &format!("at rest: {name}, processor"), 100.0 * used / seconds, "%")
                .note(format!("of one core; {used:.2} s in {seconds} s")),
        );
    }
    Ok(rows)
}
