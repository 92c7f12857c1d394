//! The checks of a cluster: one list, from which `doctor`, `status`, the preflight and the verification of `install`, and `test cluster`
//! take theirs. What they need is read once; they judge it without another request.

mod cluster;
pub(super) mod component;
mod distributions;
pub(super) mod facts;
pub(super) mod finding;
mod installed;
mod nodes;
mod objects;
pub(super) mod read;
mod view;
mod webhooks;

pub(super) use self::facts::{Facts, Source, Wanted};
pub(super) use self::finding::{Finding, Verdict};
pub(super) use self::installed::definitions;
pub(super) use self::objects::only;

/// What checks are about; the name is in the output of `doctor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Cluster,
    /// What an installation needs; `install` and `upgrade` refuse what fails.
    Preflight,
    /// The installation; `install` waits until nothing fails.
    Services,
    Objects,
}

impl Group {
    pub(super) const ALL: [Self; 4] = [Self::Cluster, Self::Preflight, Self::Services, Self::Objects];

    const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Preflight => "preflight",
            Self::Services => "services",
            Self::Objects => "objects",
        }
    }
}

/// A check: what it needs to look at, and the judgement of that.
struct Check {
    group: Group,
    needs: &'static [Source],
    judge: fn(&Facts) -> Vec<Finding>,
}

const fn check(group: Group, needs: &'static [Source], judge: fn(&Facts) -> Vec<Finding>) -> Check {
    Check { group, needs, judge }
}

use Group::{Cluster, Objects, Preflight, Services};
use Source::{
    Authority, Autoscalers, Certificates, Controllers, Definitions, Endpoints, Heartbeats, HookService,
    Hooks, ImageVolumes, Leases, Machines, Multus, Networks, Nodes, Pods, Space, Unbound, Workloads,
};

const ALL: &[Check] = &[
    check(Cluster, &[], cluster::latency),
    check(Cluster, &[], cluster::skew),
    check(Preflight, &[], cluster::version),
    check(Preflight, &[], cluster::rights),
    check(Preflight, &[ImageVolumes, Nodes], cluster::image_volumes),
    check(Preflight, &[Nodes, Pods], nodes::all),
    check(Preflight, &[Nodes], distributions::all),
    check(Preflight, &[Networks], cluster::mtu),
    check(Preflight, &[Multus], cluster::multus),
    check(Preflight, &[], cluster::upstream_agents),
    check(Preflight, &[Space], cluster::pod_security),
    check(Preflight, &[Controllers, Hooks, HookService, Definitions], installed::leftovers),
    check(Services, &[Definitions, Workloads, Leases], installed::served),
    check(
        Services,
        &[Workloads, Pods, Leases, Hooks, Endpoints, Nodes, Heartbeats, Machines, Autoscalers, Unbound],
        component::findings,
    ),
    check(Services, &[Nodes, Pods, Workloads], nodes::devices),
    check(Services, &[Authority, Workloads], installed::authority),
    check(Services, &[Certificates], installed::certificates),
    check(Services, &[], installed::agents),
    check(Services, &[Nodes, Workloads], installed::versions),
    check(Objects, &[Nodes, Heartbeats], objects::nodes),
    check(Objects, &[Machines], objects::accelerators),
    check(Objects, &[Machines], objects::machines),
    check(Objects, &[Unbound], objects::pods),
    check(Objects, &[Autoscalers], objects::autoscalers),
];

pub(super) fn needs(groups: &[Group]) -> Vec<Source> {
    let chosen = ALL.iter().filter(|check| groups.contains(&check.group));
    let mut all: Vec<Source> = chosen.flat_map(|check| check.needs).copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

pub(super) fn findings(facts: &Facts, group: Group) -> Vec<Finding> {
    let chosen = ALL.iter().filter(|check| check.group == group);
    chosen.flat_map(|check| (check.judge)(facts)).map(|found| found.in_group(group.name())).collect()
}

#[cfg(test)]
mod tests;
