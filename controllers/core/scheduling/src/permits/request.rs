//! Handles the requests of agents.

use std::time::Duration;

use neonvm_types::version::PluginProtoVersion;
use neonvm_types::{Bytes, NamespacedName, Resources};

use super::account::{PodEntry, undiscounted};
use super::{Noted, Pair, State};

/// Least time between two notes at one VM.
const NOTE_PAUSE: Duration = Duration::from_secs(1);

/// A request of an agent. Memory is in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// The version its agent speaks.
    pub version: PluginProtoVersion,
    /// The compute unit.
    pub unit: Resources,
    /// What it wants the VM to have.
    pub resources: Resources,
    /// What it was last permitted; `None` before the first permit, and always before v2.1.
    pub last_permit: Option<Resources>,
    /// Load average of one minute; `None` if unknown.
    pub load: Option<f32>,
}

impl Request {
    /// Of the latest version.
    #[must_use]
    pub fn new(unit: Resources, resources: Resources, last_permit: Option<Resources>) -> Self {
        Self { version: PluginProtoVersion::V5_0, unit, resources, last_permit, load: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What the VM may use; never more than requested.
    pub permit: Resources,
    /// Whether the VM is leaving its node: it is not scaled meanwhile.
    pub migrate: bool,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nodes and pods have not been listed.
    #[error("the scheduler has not seen all nodes and pods yet")]
    Starting,
    /// There is no such pod.
    #[error("pod {0} is not known")]
    UnknownPod(NamespacedName),
    /// The pod is on no node, or has ended.
    #[error("pod {0} runs on no node")]
    NotRunning(NamespacedName),
    /// Its node has not been observed.
    #[error("node {node} of pod {pod} is not known")]
    UnknownNode { pod: NamespacedName, node: String },
    /// There is no VM in it.
    #[error("pod {0} is not a VM's")]
    NotVm(NamespacedName),
    /// The VM is not scaled.
    #[error("the VM in pod {0} is not scaled: it lacks the label autoscaling.neon.tech/enabled=true")]
    NotScaled(NamespacedName),
    /// The pod's annotations are wrong.
    #[error("pod {pod}: {problem}")]
    Unreadable {
        pod: NamespacedName,
        /// What is wrong.
        problem: String,
    },
    /// A value of the request is wrong.
    #[error("{field}: {reason}")]
    Field {
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The VM is being migrated, and must keep its size.
    #[error("the VM in pod {pod} is being migrated and must keep {held:?}")]
    Migrating {
        pod: NamespacedName,
        /// What it holds.
        held: Resources,
    },
}

impl Refusal {
    /// Status of the HTTP answer.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Starting => 503,
            Self::UnknownPod(_) | Self::NotRunning(_) | Self::UnknownNode { .. } => 404,
            Self::NotVm(_) | Self::NotScaled(_) | Self::Field { .. } | Self::Migrating { .. } => 400,
            Self::Unreadable { .. } => 500,
        }
    }
}

/// What a grant depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// What is granted in any case, if requested: what the VM holds or has.
    pub(crate) base: Pair<u64>,
    /// The most that fits on the node.
    pub(crate) room: Pair<u64>,
}

/// How much of `request` is granted.
///
/// If all of it fits, all. Otherwise a request of whole compute units gets the same number for CPU and memory; another one gets
/// whole steps of each. What the VM has already is never taken away here.
pub(crate) fn grant(request: Pair<u64>, unit: Pair<u64>, terms: Terms) -> Pair<u64> {
    let base = terms.base.min(request);
    let limit = terms.room.max(base);
    if !request.any_greater(limit) {
        return request;
    }
    let units = limit.with(unit, |limit, unit| limit.checked_div(unit).unwrap_or(0));
    if is_whole(request, unit) {
        let units = units.cpu.min(units.mem);
        return unit.map(|unit| unit.saturating_mul(units)).min(request).max(base);
    }
    let stepped = |request: u64, (base, limit): (u64, u64), unit: u64| {
        let room = limit - base.min(limit);
        let steps = room.checked_div(unit).unwrap_or(0).saturating_mul(unit);
        if request <= limit { request } else { base.saturating_add(steps).min(request) }
    };
    let ends = base.with(limit, |base, limit| (base, limit));
    Pair::new(stepped(request.cpu, ends.cpu, unit.cpu), stepped(request.mem, ends.mem, unit.mem))
}

/// Whether both are the same whole number of units.
pub(crate) fn is_whole(amount: Pair<u64>, unit: Pair<u64>) -> bool {
    let exact = |amount: u64, unit: u64| amount.checked_rem(unit) == Some(0);
    let count = |amount: u64, unit: u64| amount.checked_div(unit);
    exact(amount.cpu, unit.cpu)
        && exact(amount.mem, unit.mem)
        && count(amount.cpu, unit.cpu) == count(amount.mem, unit.mem)
}

impl State {
    /// Answers an agent. The state remembers what it has permitted; whether the answer arrives is seen from the agent's next
    /// `last_permit`.
    ///
    /// # Errors
    /// If there is nothing to permit; the state is as before, but for the count.
    pub fn request(
        &mut self,
        now: Duration,
        pod: &NamespacedName,
        request: &Request,
    ) -> Result<Reply, Refusal> {
        self.latest = self.latest.max(now);
        let answer = self.try_request(pod, request);
        match &answer {
            Ok(reply) => {
                self.counters.permits += 1;
                let denied = request.resources.any_greater(reply.permit);
                self.counters.denials += u64::from(denied);
            }
            Err(_) => self.counters.refusals += 1,
        }
        answer
    }

    /// Memory of a slot of the VM, and whether the pod's agent may send requests at all.
    ///
    /// # Errors
    /// If it cannot.
    pub fn slot_size(&self, key: &NamespacedName) -> Result<Bytes, Refusal> {
        if !self.listed {
            return Err(Refusal::Starting);
        }
        self.eligible(key).map(|(_, _, slot)| slot)
    }

    fn eligible(&self, key: &NamespacedName) -> Result<(usize, &PodEntry, Bytes), Refusal> {
        let index = self.pod_index.get(key).copied();
        let found = index.and_then(|index| Some((index, self.pods.get(index)?)));
        let (index, pod) = found.ok_or_else(|| Refusal::UnknownPod(key.clone()))?;
        let bound = pod.node.filter(|_| !pod.seen.ended && pod.tentative.is_none());
        let node = bound.and_then(|node| self.nodes.get(node));
        let node = node.ok_or_else(|| Refusal::NotRunning(key.clone()))?;
        if node.seen.is_none() {
            return Err(Refusal::UnknownNode { pod: key.clone(), node: node.name.clone() });
        }
        let vm = pod.seen.vm.as_ref().ok_or_else(|| Refusal::NotVm(key.clone()))?;
        let slot = vm.slot_size.ok_or_else(|| {
            let problem = pod.seen.problems.first().cloned();
            let problem = problem.unwrap_or_else(|| "its size is not known".to_owned());
            Refusal::Unreadable { pod: key.clone(), problem }
        })?;
        Ok((index, pod, slot))
    }

    /// The most that fits on a pod's node in its place.
    pub(crate) fn room(&self, pod: &PodEntry) -> Pair<u64> {
        let Some(node) = pod.node.and_then(|node| self.nodes.get(node)) else { return Pair::default() };
        let own = if pod.ignored { Pair::default() } else { pod.seen.counted(pod.reserved()) };
        let others = node.sums.reserved.with(own, u128::saturating_sub);
        let others = others.with(pod.seen.overhead.map(u128::from), u128::saturating_add);
        let free = node.total().with(others, |total, others| u128::from(total).saturating_sub(others));
        free.with(pod.overcommit(), undiscounted)
    }

    fn try_request(&mut self, key: &NamespacedName, request: &Request) -> Result<Reply, Refusal> {
        if !self.listed {
            return Err(Refusal::Starting);
        }
        let (index, pod, slot) = self.eligible(key)?;
        check(request)?;
        // A VM gets no more than its upper bound, whatever client requests it; what it has beyond a bound that was lowered stays. Its spec
        // has the new size while the guest still returns memory: a new scheduler learns from the agent what the VM has.
        let last = request.last_permit.map_or(Pair::default(), Pair::from);
        let has = base(pod, None).max(pod.seen.believed(last, &self.settings));
        let most = pod.seen.vm.as_ref().and_then(|vm| vm.max).map(|max| Pair::from(max).max(has));
        let bounded = |size: Resources| most.map_or(Pair::from(size), |most| most.min(size.into()));
        let (wanted, unit) = (bounded(request.resources), Pair::from(whole_slots(request.unit, slot)));
        if !pod.seen.vm.as_ref().is_some_and(|vm| vm.scaled) {
            return permit_unlabelled(pod, wanted);
        }
        if pod.migrating && pod.known && wanted != pod.held {
            return Err(Refusal::Migrating { pod: key.clone(), held: pod.held.resources() });
        }
        let load = request.load.filter(|load| load.is_finite());
        if load.is_some()
            && load != pod.load
            && let Some(pod) = self.pods.get_mut(index)
        {
            pod.load = load;
        }
        self.consider_leaving(index);
        let Some(pod) = self.pods.get(index) else { return Err(Refusal::UnknownPod(key.clone())) };
        let stays = !pod.is_about_to_leave();
        let terms = Terms {
            base: base(pod, request.last_permit.map(bounded)),
            room: if stays { self.room(pod) } else { Pair::default() },
        };
        let granted = grant(wanted, unit, terms);
        let values =
            Noted { unit: request.unit, requested: request.resources, approved: granted.resources() };
        let now = self.latest;
        self.change(index, |pod| {
            // An agent that does not report its permit, after a denial, may hold what was denied.
            let silent = request.version.has_last_permit() && request.last_permit.is_none();
            pod.buffer =
                if !pod.known && silent { pod.reserved().min(wanted).less(granted) } else { Pair::default() };
            pod.known = pod.known || pod.buffer == Pair::default();
            pod.held = granted;
            pod.pressure = wanted.less(granted);
            pod.request = Some((now, values));
        });
        self.first_unknown();
        self.note(index);
        Ok(Reply { permit: granted.resources(), migrate: !stays })
    }

    /// Puts a pod's note into the queue if its VM has something else noted.
    pub(crate) fn note(&mut self, index: usize) {
        let now = self.latest;
        let Some(pod) = self.pods.get_mut(index) else { return };
        let wanted = pod.request.map(|(_, values)| values);
        if pod.writing || pod.due.is_some() || wanted.is_none() || wanted == pod.noted {
            return;
        }
        let due = pod.tried.map_or(now, |tried| now.max(tried + NOTE_PAUSE));
        pod.due = Some(due);
        self.due.insert((due, index));
    }
}

/// The label gets to the VM first and to its pod a moment later, so its agent may send requests before the pod shows it.
/// Meanwhile the VM is permitted what it has; nothing is reserved.
fn permit_unlabelled(pod: &PodEntry, wanted: Pair<u64>) -> Result<Reply, Refusal> {
    let permit = wanted.min(pod.seen.usage).resources();
    permit.validate_non_zero().map_err(|_| Refusal::NotScaled(pod.seen.pod.clone()))?;
    Ok(Reply { permit, migrate: pod.is_about_to_leave() })
}

/// What a pod is granted in any case, the largest of: its usage in the cluster (every scheduler counts that); its permit from
/// this scheduler; and the permit that its agent reports, from an earlier scheduler or from a response of this one that a later
/// one overtook. A permit that is only noted in an annotation does not count: it may be of any age.
pub(crate) fn base(pod: &PodEntry, last_permit: Option<Pair<u64>>) -> Pair<u64> {
    let held = if pod.known { pod.held } else { Pair::default() };
    held.max(pod.seen.usage).max(last_permit.unwrap_or_default())
}

fn check(request: &Request) -> Result<(), Refusal> {
    let field = |field, reason: String| Refusal::Field { field, reason };
    request.unit.validate_non_zero().map_err(|error| field("computeUnit", error.to_string()))?;
    request.resources.validate_non_zero().map_err(|error| field("resources", error.to_string()))
}

/// The unit that parts of a request are granted in: its memory in whole slots, at least one, because a VM takes nothing else.
/// Upstream refuses a unit that is no multiple of the slot, so that VMs with such slots are never scaled.
pub(crate) fn whole_slots(unit: Resources, slot: Bytes) -> Resources {
    let slots = unit.mem.get().checked_div(slot.get()).unwrap_or(1).max(1);
    let mem = slot.get().checked_mul(slots).map_or(unit.mem, Bytes::new);
    Resources { mem, ..unit }
}
