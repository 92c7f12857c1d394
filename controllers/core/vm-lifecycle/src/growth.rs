//! A growth that the VM's node denied, or the wake of a suspended VM: whether the VM is migrated to a node where its size fits.
//!
//! ```text
//! denied ──for good, or deferred for as long as `deferred_after`──▶ the other nodes are looked at
//!    one has room ──▶ migration `grow-POD-N`, whose target pod requests the grown size
//!    none has     ──▶ event; they are looked at again after `look_pause`
//! granted, or migrated by another one, meanwhile ──▶ a migration that still waits for its turn is deleted
//! ```
//!
//! Only VMs with the label `autoscaling.neon.tech/auto-migration-enabled` are migrated. Laws, each a property test: no migration while
//! another one of the VM is open; none while no other node has room; of one VM at most `most` in a day, with pauses that double, and
//! none to a node that denied as much within a day. The migrations themselves are the record, so a controller that is started again
//! continues where the last one ended.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use neonvm_api::names::{TRUE, annotation, label};
use neonvm_api::pod_annotation::Usage;
use neonvm_api::virtual_machine::Phase;
use neonvm_api::{VirtualMachine, VirtualMachineMigration, VirtualMachineMigrationSpec};
use neonvm_types::runner_protocol::SizeRequest;
use neonvm_types::{Bytes, MilliCpu, Timestamp};

use crate::condition::{self, SCALED};
use crate::observed::{Obstacle, time};
use crate::pod;
use crate::settings::GrowthSettings;
use neonvm_api::migration::{is_over, is_waiting};

/// How long a denial and the migrations for it count, in seconds.
const DAY: i64 = 86_400;
/// Denials no further apart than this, in seconds, count as one: an agent whose request is denied sets the size back,
/// and repeats the request within 240 s.
const TOGETHER: i64 = 300;

/// A growth that the node of a VM denies now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The VM's pod.
    pub pod: String,
    /// Name of the VM's node.
    pub node: String,
    /// What the VM is to have.
    pub size: SizeRequest,
    /// Whether the node can never give it, or the VM is suspended and cannot wake: then nothing is waited for.
    pub lasting: bool,
}

impl Denial {
    /// What a VM is denied, if it is, and may be migrated for it.
    #[must_use]
    pub fn from_vm(vm: &VirtualMachine) -> Option<Self> {
        let labels = vm.metadata.labels.as_ref();
        let movable =
            labels.and_then(|all| all.get(label::AUTO_MIGRATION_ENABLED)).is_some_and(|on| on == TRUE);
        let movable = movable && vm.status.as_ref().is_none_or(|status| status.pinned_by().is_none());
        let status = vm.status.as_ref().filter(|_| movable && vm.metadata.deletion_timestamp.is_none())?;
        let waits_to_wake = status.phase == Some(Phase::Suspended);
        let is_up = waits_to_wake || status.phase == Some(Phase::Running);
        if !is_up || status.migration.is_some() || status.node.is_empty() {
            return None;
        }
        let scaled = condition::find(status, SCALED).filter(|scaled| scaled.status == "False")?;
        // Nothing else is better on another node: devices come back, and policies and quotas are the same there.
        let is = |obstacle: Obstacle| scaled.reason == obstacle.reason();
        let lasting = is(Obstacle::TooLarge);
        if !lasting && !is(Obstacle::NoRoom) {
            return None;
        }
        // Meanwhile a suspended VM does nothing, so it does not wait for room to become free.
        let lasting = lasting || waits_to_wake;
        let size = pod::size::at_start(vm).ok()?;
        Some(Self { pod: status.pod_name.clone(), node: status.node.clone(), size, lasting })
    }
}

/// Since when the pod of a VM is denied more, as far as this controller has observed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spell {
    /// Name of the VM's pod.
    pub pod: String,
    /// First denied.
    pub first: Timestamp,
    /// Last denied.
    pub last: Timestamp,
}

impl Spell {
    /// With the denial that is observed now.
    #[must_use]
    pub fn next(before: Option<Self>, pod: &str, now: Timestamp) -> Self {
        let same = before
            .filter(|old| old.pod == pod && now.unix().saturating_sub(old.last.unix()) <= TOGETHER)
            .map_or(now, |old| old.first);
        Self { pod: pod.to_owned(), first: same, last: now }
    }
}

/// What is decided upon.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The denial that the node reported.
    pub denial: &'a Denial,
    /// Since when it is.
    pub spell: &'a Spell,
    /// All migrations of the VM.
    pub migrations: &'a [Arc<VirtualMachineMigration>],
    /// When the nodes were last searched for room without success.
    pub looked: Option<Timestamp>,
}

/// A node, and whether the grown VM has room there now; if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateNode {
    /// Name of the node.
    pub name: String,
    /// Whether it has room.
    pub room: Result<(), String>,
}

/// What is done about a denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing, until something else happens to the VM or its migrations.
    Stay,
    /// Nothing before this time.
    Wait(Timestamp),
    /// The other nodes are listed, and the decision is repeated.
    Look,
    /// No other node has room: why.
    Nowhere(String),
    Migrate {
        /// The number in the migration's name.
        number: u32,
        /// Nodes that have denied as much.
        avoid: Vec<String>,
    },
}

/// An earlier migration for a growth, which is over.
struct Attempt {
    node: String,
    size: SizeRequest,
    ended: Timestamp,
}

/// Decides; `places`: all nodes, once they have been listed.
#[must_use]
pub fn decide(
    now: Timestamp,
    case: &Case<'_>,
    places: Option<&[CandidateNode]>,
    settings: &GrowthSettings,
) -> Decision {
    if case.migrations.iter().any(|one| !is_over(one)) {
        return Decision::Stay;
    }
    let attempts = attempts(case.migrations, now);
    if let Some(due) = due(case, &attempts, settings)
        && due > now
    {
        return Decision::Wait(due);
    }
    let Some(places) = places else { return Decision::Look };
    let denial = case.denial;
    let as_much = |one: &&Attempt| covers(denial.size, one.size);
    let avoid: Vec<String> = attempts.iter().filter(as_much).map(|one| one.node.clone()).collect();
    let mut against = Vec::new();
    for place in places.iter().filter(|place| place.name != denial.node) {
        match &place.room {
            Ok(()) if !avoid.contains(&place.name) => {
                return Decision::Migrate { number: number(case), avoid };
            }
            Ok(()) => against.push(format!("{} has denied as much", place.name)),
            Err(why) => against.push(format!("{} {why}", place.name)),
        }
    }
    Decision::Nowhere(if against.is_empty() {
        "there is no other node".to_owned()
    } else {
        against.join("; ")
    })
}

/// When it is time, if there is anything to wait for.
fn due(case: &Case<'_>, attempts: &[Attempt], settings: &GrowthSettings) -> Option<Timestamp> {
    let after = |from: Timestamp, seconds: i64| Timestamp::from_unix(from.unix().saturating_add(seconds));
    let deferred = (!case.denial.lasting).then(|| after(case.spell.first, settings.deferred_after)).flatten();
    let looked = case.looked.and_then(|at| after(at, settings.look_pause));
    let mut times: Vec<Timestamp> = attempts.iter().map(|one| one.ended).collect();
    times.sort_unstable();
    let doubled = u32::try_from(attempts.len()).unwrap_or(u32::MAX).saturating_sub(1);
    let pause = 2_i64.saturating_pow(doubled).saturating_mul(settings.pause).min(settings.pause_max);
    let paused = times.last().and_then(|last| after(*last, pause));
    // As many as there may be in a day: when the first of the last so many is a day ago.
    let first = times.len().checked_sub(settings.most).and_then(|index| times.get(index));
    let spent = first.and_then(|first| after(*first, DAY));
    [deferred, looked, paused, spent].into_iter().flatten().max()
}

/// Whether `size` is at least `other` in both amounts: a node that denied the latter has no room for the former.
fn covers(size: SizeRequest, other: SizeRequest) -> bool {
    size.cpu >= other.cpu && size.memory >= other.memory
}

fn is_ours(migration: &VirtualMachineMigration) -> bool {
    let labels = migration.metadata.labels.as_ref();
    labels.and_then(|all| all.get(label::CREATED_BY_DENIED_GROWTH)).is_some_and(|on| on == TRUE)
}

/// When a migration ended, or, so that it is not forgotten, the last time recorded for it.
fn ended(migration: &VirtualMachineMigration) -> Option<Timestamp> {
    let status = migration.status.as_ref();
    let of_status = status.and_then(|status| status.completion_time.or(status.start_time));
    of_status.or_else(|| migration.metadata.creation_timestamp.as_ref().and_then(time))
}

fn is_old(migration: &VirtualMachineMigration, now: Timestamp) -> bool {
    ended(migration).is_none_or(|ended| now.unix().saturating_sub(ended.unix()) >= DAY)
}

fn attempts(migrations: &[Arc<VirtualMachineMigration>], now: Timestamp) -> Vec<Attempt> {
    let over = migrations.iter().filter(|one| is_ours(one) && is_over(one) && !is_old(one, now));
    let attempt = |one: &Arc<VirtualMachineMigration>| {
        let node = one.status.as_ref().map(|status| status.source_node.clone()).unwrap_or_default();
        Some(Attempt { node, size: size_of(one)?, ended: ended(one)? })
    };
    over.filter_map(attempt).collect()
}

/// One more than the highest number of the pod's migrations.
fn number(case: &Case<'_>) -> u32 {
    let prefix = prefix(&case.denial.pod);
    let names = case.migrations.iter().filter_map(|one| one.metadata.name.as_deref());
    let numbers = names.filter_map(|name| name.strip_prefix(&prefix)?.parse::<u32>().ok());
    numbers.max().unwrap_or(0).saturating_add(1)
}

fn prefix(pod: &str) -> String {
    format!("grow-{pod}-")
}

/// The size that a migration is to have room for on its target, if it is made for a growth.
#[must_use]
pub fn size_of(migration: &VirtualMachineMigration) -> Option<SizeRequest> {
    let text = migration.metadata.annotations.as_ref()?.get(annotation::GROWTH)?;
    let usage: Usage = serde_json::from_str(text).ok()?;
    let cpu = u32::try_from(usage.cpu.milli_rounded_up()).ok().map(MilliCpu::new)?;
    Some(SizeRequest { cpu, memory: Bytes::try_from(usage.memory).ok()? })
}

#[must_use]
pub fn migration(vm: &str, denial: &Denial, number: u32, avoid: &[String]) -> VirtualMachineMigration {
    let mut spec = VirtualMachineMigrationSpec::new(vm);
    if !avoid.is_empty() {
        // One value each: more than one the API server does not take.
        let fields = avoid.iter().map(|node| NodeSelectorRequirement {
            key: "metadata.name".to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(vec![node.clone()]),
        });
        let term = NodeSelectorTerm { match_fields: Some(fields.collect()), match_expressions: None };
        spec.node_affinity = Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: vec![term],
            }),
            ..NodeAffinity::default()
        });
    }
    let mut made = VirtualMachineMigration::new(&format!("{}{number}", prefix(&denial.pod)), spec);
    made.metadata.labels = Some([(label::CREATED_BY_DENIED_GROWTH.to_owned(), TRUE.to_owned())].into());
    let size = Usage { cpu: denial.size.cpu.to_quantity(), memory: denial.size.memory.to_quantity() };
    let text = serde_json::to_string(&size).unwrap_or_default();
    made.metadata.annotations = Some([(annotation::GROWTH.to_owned(), text)].into());
    made
}

/// The migration for a growth that is no longer needed before it was admitted: the VM's node has granted the growth, or
/// another migration has migrated the VM.
#[must_use]
pub fn superfluous<'a>(
    vm: &VirtualMachine,
    migrations: &'a [Arc<VirtualMachineMigration>],
) -> Option<&'a VirtualMachineMigration> {
    let status = vm.status.as_ref()?;
    let memory = status.memory_size.and_then(|size| Bytes::try_from(size).ok());
    let has = status.cpus.zip(memory).map(|(cpu, memory)| SizeRequest { cpu, memory });
    let locked = status.migration.as_ref().map(|lock| lock.uid.as_str());
    let waits = |one: &&Arc<VirtualMachineMigration>| {
        is_ours(one) && is_waiting(one, locked.is_some() && locked == one.metadata.uid.as_deref())
    };
    let here = prefix(&status.pod_name);
    let needless = |one: &&Arc<VirtualMachineMigration>| {
        let elsewhere = one.metadata.name.as_ref().is_none_or(|name| !name.starts_with(&here));
        elsewhere || size_of(one).is_none_or(|size| has.is_some_and(|has| covers(has, size)))
    };
    migrations.iter().filter(waits).find(needless).map(|one| &**one)
}

/// Migrations for growths that are over for so long that they count no more.
pub fn forgotten(
    migrations: &[Arc<VirtualMachineMigration>],
    now: Timestamp,
) -> impl Iterator<Item = &VirtualMachineMigration> {
    let old = move |one: &&Arc<VirtualMachineMigration>| is_ours(one) && is_over(one) && is_old(one, now);
    migrations.iter().filter(old).filter(|one| one.metadata.deletion_timestamp.is_none()).map(|one| &**one)
}
