//! The world's own account, independent of the cores: what each VM may come to use, and the messages sent. The safety
//! invariants are checked against it, for the objects that an event touched.

use neonvm_core_scheduling::permits::Pair;
use neonvm_types::Resources;

use super::World;
use super::api::Change;
use super::model::{Account, Id, Snapshot};
use crate::Invariant;
use crate::queue::Time;

/// Most changes that were made and not acknowledged.
const UNACKNOWLEDGED: usize = 8;
/// How often a resource may grow after it has shrunk in the calm: noise turns it 1, 2, 4 and 8 minutes later.
const MOST_TURNS: u32 = 6;

fn discounted(size: Resources, overcommit: u64) -> Pair<u128> {
    Pair::from(size).map(|amount| (u128::from(amount) * 1000).div_ceil(u128::from(overcommit.max(1))))
}

fn text(size: Resources) -> String {
    format!("{}/{}", size.vcpus, size.mem)
}

impl World {
    /// What a pod may take, and what it takes, not discounted.
    fn claims(&self, id: Id) -> (Resources, Resources, u64) {
        let none = Resources::default();
        let Some(pod) = self.pods.get(id).filter(|pod| pod.alive && !pod.ended) else {
            return (none, none, 1000);
        };
        let Some(vm) = pod.vm.and_then(|vm| self.vms.get(vm)) else { return (pod.usage, pod.usage, 1000) };
        if vm.pod != Some(id) {
            return (pod.usage, none, vm.overcommit);
        }
        let mut may = vm.has.max(vm.asked);
        if let Some(agent) = vm.agent.as_deref() {
            let account = &agent.account;
            let coming =
                account.issued.filter(|(id, _)| account.asking.is_some_and(|(asking, ..)| asking == *id));
            let coming = coming.map(|(_, permit)| permit);
            // An agent requests no size above the bound, so what it was permitted beyond a lowered one is not used.
            let permits = [account.permit, coming].into_iter().flatten().map(|permit| permit.min(vm.max));
            may = permits.fold(may, Resources::max);
        }
        (may, vm.has, vm.overcommit)
    }

    /// Something about a pod has changed: its node's sums follow, and S1 is checked.
    pub(super) fn recount(&mut self, id: Id) {
        let (may, has, overcommit) = self.claims(id);
        let counted = [discounted(may, overcommit), discounted(has, overcommit)];
        let Some(pod) = self.pods.get_mut(id) else { return };
        let before = std::mem::replace(&mut pod.counted, counted);
        let Some(at) = pod.node else { return };
        let Some(node) = self.nodes.get_mut(at) else { return };
        let [taken, used] = counted;
        let [taken_before, used_before] = before;
        let moved = |sum: Pair<u128>, before: Pair<u128>, now: Pair<u128>| {
            let less = sum.with(before, u128::saturating_sub);
            less.with(now, u128::saturating_add)
        };
        node.taken = moved(node.taken, taken_before, taken);
        node.used = moved(node.used, used_before, used);
        let grown = taken.any_greater(taken_before);
        if grown {
            self.check_capacity(at);
        }
    }

    fn check_capacity(&mut self, at: Id) {
        self.check(Invariant::Capacity);
        let Some(node) = self.nodes.get(at) else { return };
        if !node.lost && node.taken.any_greater(node.total.map(u128::from)) {
            let message = self.overfull(at);
            self.fail(Invariant::Capacity, message);
        }
    }

    /// A node and its pods, in words: what they may take, and what the scheduler thinks.
    #[cold]
    fn overfull(&self, at: Id) -> String {
        let Some(node) = self.nodes.get(at) else { return String::new() };
        let mib = |bytes: u128| bytes >> 20;
        let mut message = format!(
            "{} offers {}m CPU and {} MiB; its pods may take {}m and {} MiB:",
            node.name,
            node.total.cpu,
            node.total.mem >> 20,
            node.taken.cpu,
            mib(node.taken.mem)
        );
        let state = self.leader.and_then(|leader| self.replicas.get(leader)).map(|one| &one.state);
        let view = state.and_then(|state| state.inspect_node(&node.name));
        for id in &node.pods {
            let Some(pod) = self.pods.get(*id) else { continue };
            let (may, has, _) = self.claims(*id);
            let seen = view.as_ref().and_then(|view| view.pods.iter().find(|seen| seen.pod == pod.key));
            let seen = seen.map_or_else(
                || "not known".to_owned(),
                |seen| format!("{} with buffer {}", text(seen.reserved), text(seen.buffer)),
            );
            let (name, may, has) = (&pod.key.name, text(may), text(has));
            message.push_str(&format!(" {name} {may} (has {has}, scheduler {seen});"));
        }
        message
    }

    /// A pod is on a node from now on, as the API server has it.
    pub(super) fn bound(&mut self, id: Id, node: Id) {
        let now = self.now;
        if let Some(pod) = self.pods.get_mut(id) {
            (pod.node, pod.bound_at) = (Some(node), now);
            pod.counted = [Pair::default(); 2];
        }
        if let Some(node) = self.nodes.get_mut(node) {
            node.pods.insert(id);
        }
        self.waiting.remove(&id);
        self.recount(id);
    }

    /// A pod is gone.
    pub(super) fn unbound(&mut self, id: Id) {
        self.recount(id);
        let Some(pod) = self.pods.get(id) else { return };
        if let Some(node) = pod.node.and_then(|node| self.nodes.get_mut(node)) {
            node.pods.remove(&id);
        }
        self.waiting.remove(&id);
    }

    /// An agent sends a request to the scheduler.
    pub(super) fn book_request(&mut self, id: Id, number: u64, target: Resources) {
        self.check(Invariant::Permit);
        self.check(Invariant::Bounded);
        let (now, deadline) = (self.now, super::micros(self.agent_settings.plugin_reply_deadline));
        let pause = super::micros(self.agent_settings.plugin_retry_wait);
        let Some(vm) = self.vms.get_mut(id) else { return };
        let (name, has) = (&vm.name, vm.has.max(vm.asked));
        let Some(agent) = vm.agent.as_deref_mut() else { return };
        let account = &mut agent.account;
        let mut wrong = None;
        if target.any_less(has) {
            let what = format!("{name}: the scheduler is sent {}, the VM has {}", text(target), text(has));
            wrong = Some((Invariant::Permit, what));
        }
        if let Some((_, _, at, false)) = account.asking {
            if now < at.saturating_add(deadline) {
                wrong = Some((Invariant::Bounded, format!("{name}: two requests to the scheduler at once")));
            } else {
                account.ask_failed =
                    Some(account.ask_failed.map_or(at + deadline, |failed| failed.max(at + deadline)));
            }
        }
        if account.ask_failed.is_some_and(|failed| now < failed.saturating_add(pause)) {
            wrong =
                Some((Invariant::Bounded, format!("{name}: a failed request is repeated without a pause")));
        }
        account.asking = Some((number, target, now, false));
        account.issued = None;
        account.permit = account.permit.map(|permit| permit.min(target));
        let pod = vm.pod;
        if let Some((invariant, message)) = wrong {
            self.fail(invariant, message);
        }
        if let Some(pod) = pod {
            self.recount(pod);
        }
    }

    /// The scheduler permits something: the answer is on its way, and counts.
    pub(super) fn book_issue(&mut self, id: Id, inc: u64, number: u64, permit: Resources) {
        let Some(agent) = self.agent_of(id, inc) else { return };
        let account = &mut agent.account;
        if account.asking.is_none_or(|(asking, _, _, replied)| asking != number || replied) {
            return;
        }
        let before =
            account.issued.filter(|(issued, _)| *issued == number).map_or(permit, |(_, before)| before);
        account.issued = Some((number, permit.max(before)));
        if let Some(pod) = self.vms.get(id).and_then(|vm| vm.pod) {
            self.recount(pod);
        }
    }

    /// An answer of the scheduler arrives.
    pub(super) fn book_permit(&mut self, id: Id, inc: u64, number: u64, permit: Option<Resources>) {
        let now = self.now;
        let deadline = super::micros(self.agent_settings.plugin_reply_deadline);
        let Some(agent) = self.agent_of(id, inc) else { return };
        let account = &mut agent.account;
        let Some((asking, _, at, replied)) = &mut account.asking else { return };
        if *asking != number || *replied || now >= at.saturating_add(deadline) {
            return;
        }
        *replied = true;
        match permit {
            // Only what the scheduler really sent counts.
            Some(permit) if account.issued.is_some_and(|(_, issued)| !permit.any_greater(issued)) => {
                account.permit = Some(permit);
                account.ask_failed = None;
            }
            Some(_) => {}
            None => account.ask_failed = Some(now),
        }
        account.issued = None;
        if let Some(pod) = self.vms.get(id).and_then(|vm| vm.pod) {
            self.recount(pod);
        }
    }

    /// An agent changes its VM: S7, S9 and S13 are checked.
    pub(super) fn book_patch(&mut self, id: Id, number: u64, from: Resources, to: Resources) {
        self.check(Invariant::NoStaleWrite);
        self.check(Invariant::Bounds);
        self.check(Invariant::Bounded);
        self.check(Invariant::Still);
        let (now, unit, faults_on) = (self.now, self.unit, self.faults_on);
        let deadline = super::micros(self.agent_settings.neonvm_reply_deadline);
        let pause = super::micros(self.agent_settings.neonvm_retry_wait);
        let Some(vm) = self.vms.get_mut(id) else { return };
        let name = &vm.name;
        let Some(agent) = vm.agent.as_deref_mut() else { return };
        let mut wrong = None;
        let account = &mut agent.account;
        let known =
            account.acknowledged.is_none_or(|last| last == from) || account.unacknowledged.contains(&from);
        if !known {
            let last = account.acknowledged.map_or_else(String::new, text);
            let what = format!("{name}: a change from {} after our own to {last}", text(from));
            wrong = Some((Invariant::NoStaleWrite, what));
        }
        if let Some(what) = out_of_bounds(&agent.seen, now, from, to, unit) {
            let what = format!("{name}: a change from {} to {} {what}", text(from), text(to));
            wrong = Some((Invariant::Bounds, what));
        }
        if account.patching.is_some_and(|(_, at)| now < at.saturating_add(deadline)) {
            wrong = Some((Invariant::Bounded, format!("{name}: two changes at once")));
        }
        if account.patch_failed.is_some_and(|at| now < at.saturating_add(pause)) {
            wrong =
                Some((Invariant::Bounded, format!("{name}: a failed change is repeated without a pause")));
        }
        account.patching = Some((number, now));
        if !faults_on && account.turn(from, to) > MOST_TURNS {
            let what = format!("{name}: grows from {} to {}, again after it shrank", text(from), text(to));
            wrong = Some((Invariant::Still, what));
        }
        if let Some((invariant, message)) = wrong {
            self.fail(invariant, message);
        }
    }

    /// The answer to a change arrives.
    pub(super) fn book_patched(
        &mut self,
        id: Id,
        inc: u64,
        number: u64,
        to: Resources,
        result: Result<Option<i64>, Option<&'static str>>,
    ) {
        let now = self.now;
        let deadline = super::micros(self.agent_settings.neonvm_reply_deadline);
        let Some(agent) = self.agent_of(id, inc) else { return };
        let account = &mut agent.account;
        let current = account
            .patching
            .take_if(|(patching, at)| *patching == number && now < at.saturating_add(deadline));
        if current.is_none() {
            return;
        }
        match result {
            Ok(generation) => {
                account.generation = account.generation.max(generation.unwrap_or(0));
                account.acknowledged = Some(to);
                account.unacknowledged.clear();
                account.patch_failed = None;
            }
            Err(None) => account.patch_failed = None,
            Err(Some(_)) => account.patch_failed = Some(now),
        }
    }

    /// A change is about to be made: S2, S6 and S9 are checked.
    pub(super) fn check_write(&mut self, id: Id, change: &Change) {
        self.check(Invariant::Permit);
        self.check(Invariant::Consent);
        self.check(Invariant::NoStaleWrite);
        let Change { from, to, .. } = *change;
        let Some(vm) = self.vms.get_mut(id) else { return };
        let (name, asked, agreed) = (&vm.name, vm.asked, vm.guest.agreed);
        let mut wrong = None;
        if asked != from {
            let what = format!("{name}: changed from {}, which was {} already", text(from), text(asked));
            wrong = Some((Invariant::NoStaleWrite, what));
        }
        let permit = vm.agent.as_deref().and_then(|agent| agent.account.permit).unwrap_or_default();
        let above = (to.vcpus > asked.vcpus && to.vcpus > permit.vcpus)
            || (to.mem > asked.mem && to.mem > permit.mem);
        if above {
            let what = format!("{name}: grows to {}, permitted were {}", text(to), text(permit));
            wrong = Some((Invariant::Permit, what));
        }
        let taken = (to.vcpus < asked.vcpus && to.vcpus < agreed.vcpus)
            || (to.mem < asked.mem && to.mem < agreed.mem);
        if taken {
            let what = format!("{name}: shrinks to {}, the guest agreed to {}", text(to), text(agreed));
            wrong = Some((Invariant::Consent, what));
        }
        if let Some(agent) = vm.agent.as_deref_mut()
            && agent.account.unacknowledged.len() >= UNACKNOWLEDGED
        {
            agent.account.unacknowledged.remove(0);
        }
        if let Some((invariant, message)) = wrong {
            self.fail(invariant, message);
        }
    }
}

impl Account {
    /// Takes in a change, and returns how often a resource has grown after it had shrunk.
    fn turn(&mut self, from: Resources, to: Resources) -> u32 {
        let orders = [from.vcpus.cmp(&to.vcpus), from.mem.cmp(&to.mem)];
        for ((shrank, turns), order) in self.turns.iter_mut().zip(orders) {
            if order.is_lt() && *shrank {
                *turns += 1;
            }
            *shrank = if order.is_eq() { *shrank } else { order.is_gt() };
        }
        self.turns.iter().map(|(_, turns)| *turns).max().unwrap_or(0)
    }
}

/// What is wrong with a change, given what its agent has seen.
fn out_of_bounds(
    seen: &Snapshot,
    now: Time,
    from: Resources,
    to: Resources,
    unit: Resources,
) -> Option<&'static str> {
    let hold = seen.hold.filter(|(_, until)| now < *until).map(|(size, _)| size);
    // To take back a part of a shrinking under way, because the guest denies it, is not growth.
    let field = |from: u64, to: u64, unit: u64, (min, max): (u64, u64), (hold, has): (Option<u64>, u64)| {
        if to == from || (from < to && to <= has) {
            return None;
        }
        if let Some(hold) = hold.map(|hold| hold.clamp(min.min(max), max)) {
            return (to.abs_diff(hold) >= from.abs_diff(hold))
                .then_some("leads away from the size a person fixed");
        }
        if to > from && to > max {
            return Some("is above the upper bound");
        }
        if to < from && to < min {
            return Some("is below the lower bound");
        }
        (!to.is_multiple_of(unit.max(1)) && to != min && to != max)
            .then_some("is no whole number of compute units")
    };
    let has = seen.observed.unwrap_or_default();
    let milli = |size: Resources| u64::from(size.vcpus.milli());
    let bytes = |size: Resources| size.mem.get();
    let one = |of: &dyn Fn(Resources) -> u64| {
        field(of(from), of(to), of(unit), (of(seen.min), of(seen.max)), (hold.map(of), of(has)))
    };
    one(&milli).or_else(|| one(&bytes))
}
