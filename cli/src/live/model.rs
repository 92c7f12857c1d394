//! The fleet: what was observed last, and the last minutes of each VM.

use std::collections::BTreeMap;

use neonvm_types::Resources;
use neonvm_types::agent_inspect::VmInspect;
use neonvm_types::scheduler_inspect::ResourceView;

use super::input::{
    Account, Change, Entry, Input, Key, Kind, Load, Millis, MoveFacts, NodeFacts, Origin, VmFacts,
};
use super::series::{Level, Point, STEP, Series};
use super::size::{UNIT, float, gib, known};
use super::stream::Stream;

/// How long a migration is shown after its end, in milliseconds.
const ENDED: Millis = 120_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) facts: NodeFacts,
    /// From the scheduler, if it can be read.
    pub(crate) account: Option<Account>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Vm {
    pub(crate) facts: VmFacts,
    /// What it uses.
    pub(crate) load: Load,
    /// Why its load is not known.
    pub(crate) trouble: Option<String>,
    /// From its agent: why it has the size it has.
    pub(crate) why: Option<VmInspect>,
    pub(crate) series: Series,
}

/// One resource of a node, in thousandths of a CPU or in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Share {
    /// In use by the VMs that are shown.
    pub(crate) used: f64,
    /// Permitted by the scheduler; without it, the sizes of the VMs that are shown.
    pub(crate) permitted: f64,
    /// Requested and not available.
    pub(crate) pressure: f64,
    /// Above this VMs are to leave.
    pub(crate) watermark: Option<f64>,
    /// What the node offers.
    pub(crate) total: f64,
}

/// Everything that is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fleet {
    pub(crate) cluster: String,
    /// The namespace whose VMs are shown; none: all.
    pub(crate) namespace: Option<String>,
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) vms: BTreeMap<Key, Vm>,
    pub(crate) moves: BTreeMap<Key, MoveFacts>,
    pub(crate) stream: Stream,
    /// What cannot be read, and the remedy.
    pub(crate) troubles: BTreeMap<Origin, String>,
    pub(crate) listed: bool,
    pub(crate) now: Millis,
    sampled: Millis,
}

impl Vm {
    /// The step in which it scales.
    pub(crate) fn unit(&self) -> Resources {
        self.why.as_ref().map(|why| why.compute_unit).filter(|unit| known(*unit)).unwrap_or(UNIT)
    }

    /// The size that its metrics call for.
    pub(crate) fn goal(&self) -> Option<Resources> {
        self.why.as_ref().and_then(|why| why.goal)
    }

    /// Share of its CPUs in use, 0 to 1.
    pub(crate) fn cpu_share(&self) -> Option<f64> {
        let size = self.facts.size.vcpus.as_f64();
        self.load.cpu.filter(|_| size > 0.0).map(|used| used / size)
    }

    /// Share of its memory in use, 0 to 1.
    pub(crate) fn memory_share(&self) -> Option<f64> {
        let size = float(self.facts.size.mem.get());
        self.load.memory.filter(|_| size > 0.0).map(|used| float(used) / size)
    }

    /// What it does, in words; empty if there is nothing to remark.
    pub(crate) fn state(&self) -> String {
        if !self.facts.running {
            return self.facts.phase.clone();
        }
        let stuck = self.why.as_ref().and_then(|why| why.stuck.as_ref());
        if stuck.is_none() && !self.facts.limited.is_empty() {
            return self.facts.limited.clone();
        }
        let Some(why) = &self.why else {
            return if self.facts.scaled { String::new() } else { "fixed size".to_owned() };
        };
        match (&why.stuck, &why.limit) {
            (Some(stuck), _) => format!("stuck: {stuck}"),
            (None, Some(limit)) => limit.clone(),
            (None, None) => why.state.clone(),
        }
    }

    fn point(&self, at: Millis) -> Point {
        let cpus = |size: Resources| size.vcpus.as_f64();
        let memory = |size: Resources| gib(size.mem.get());
        let sizes = |of: &dyn Fn(Resources) -> f64, load: Option<f64>| Level {
            load: load.map(narrow),
            goal: self.goal().map(|goal| narrow(of(goal))),
            permit: self.why.as_ref().and_then(|why| why.permit).map(|permit| narrow(of(permit))),
            size: Some(self.facts.size).filter(|size| known(*size)).map(|size| narrow(of(size))),
        };
        let used = self.load.memory.map(gib);
        Point { at, cpu: sizes(&cpus, self.load.cpu), memory: sizes(&memory, used) }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "shown with few digits")]
fn narrow(value: f64) -> f32 {
    value as f32
}

impl Fleet {
    /// An empty fleet of a cluster.
    pub(crate) fn new(cluster: impl Into<String>, namespace: Option<String>) -> Self {
        Self { cluster: cluster.into(), namespace, ..Self::default() }
    }

    pub(crate) fn apply(&mut self, now: Millis, input: Input) {
        self.now = self.now.max(now);
        match input {
            Input::Nodes(change) => apply(&mut self.nodes, change, |node, facts| node.facts = facts),
            Input::Vms(change) => {
                self.listed = true;
                apply(&mut self.vms, change, set_facts);
            }
            Input::Moves(change) => apply(&mut self.moves, change, |one, facts| *one = facts),
            Input::Event(entry) => self.stream.add(entry),
            Input::Accounts(accounts) => self.set_accounts(accounts),
            Input::Agents(vms) => self.set_agents(vms),
            Input::Loads(loads) => {
                for (key, load) in loads {
                    self.set_load(&key, load);
                }
            }
            Input::Trouble(origin, Some(text)) => drop(self.troubles.insert(origin, text)),
            Input::Trouble(origin, None) => drop(self.troubles.remove(&origin)),
        }
    }

    /// Time passes: adds a point to each series when it is due.
    pub(crate) fn tick(&mut self, now: Millis) {
        self.now = self.now.max(now);
        if now - self.sampled < STEP {
            return;
        }
        self.sampled = now;
        for vm in self.vms.values_mut().filter(|vm| vm.facts.running) {
            let point = vm.point(now);
            vm.series.push(point);
        }
    }

    fn set_accounts(&mut self, accounts: Vec<(String, Account)>) {
        let mut accounts: BTreeMap<_, _> = accounts.into_iter().collect();
        for (name, node) in &mut self.nodes {
            node.account = accounts.remove(name);
        }
    }

    fn set_agents(&mut self, vms: Vec<VmInspect>) {
        let mut all: BTreeMap<Key, VmInspect> =
            vms.into_iter().map(|vm| (Key::new(vm.namespace.clone(), vm.name.clone()), vm)).collect();
        for (key, vm) in &mut self.vms {
            let why = all.remove(key);
            let last = vm.why.as_ref().and_then(|why| why.decisions.last());
            for entry in why.iter().flat_map(|why| decisions(key, why, last)) {
                self.stream.add(entry);
            }
            vm.why = why;
        }
    }

    fn set_load(&mut self, key: &Key, load: Result<Load, String>) {
        let Some(vm) = self.vms.get_mut(key) else { return };
        (vm.load, vm.trouble) = match load {
            Ok(load) => (load, None),
            Err(trouble) => (Load::default(), Some(trouble)),
        };
    }

    pub(crate) fn shares(&self, name: &str, node: &Node) -> (Share, Share) {
        let here = || self.vms.values().filter(|vm| vm.facts.node == name && vm.facts.running);
        // A sum of nothing is -0.
        let sum = |amounts: &mut dyn Iterator<Item = f64>| amounts.sum::<f64>() + 0.0;
        let used_cpu = sum(&mut here().filter_map(|vm| vm.load.cpu)) * 1000.0;
        let used_memory = sum(&mut here().filter_map(|vm| vm.load.memory).map(float));
        let account = node.account.as_ref();
        let cpu = sum(&mut here().map(|vm| f64::from(vm.facts.size.vcpus.milli())));
        let memory = sum(&mut here().map(|vm| float(vm.facts.size.mem.get())));
        let total = node.facts.total;
        (
            share(used_cpu, account.map(|account| account.cpu), cpu, f64::from(total.vcpus.milli())),
            share(used_memory, account.map(|account| account.memory), memory, float(total.mem.get())),
        )
    }

    /// Migrations that are active or ended lately, newest first; the active ones before.
    pub(crate) fn shown_moves(&self) -> Vec<(&Key, &MoveFacts)> {
        let recent = |facts: &MoveFacts| facts.ended.is_none_or(|ended| self.now - ended < ENDED);
        let mut moves: Vec<_> = self.moves.iter().filter(|(_, facts)| recent(facts)).collect();
        moves.sort_by_key(|(_, facts)| (facts.ended.is_some(), std::cmp::Reverse(facts.created)));
        moves
    }

    pub(crate) fn move_of(&self, vm: &Key) -> Option<&MoveFacts> {
        let own = |key: &Key, facts: &MoveFacts| key.namespace == vm.namespace && facts.vm == vm.name;
        let active = self.moves.iter().filter(|(_, facts)| facts.ended.is_none());
        active.filter(|(key, facts)| own(key, facts)).map(|(_, facts)| facts).next_back()
    }
}

fn set_facts(vm: &mut Vm, facts: VmFacts) {
    // Another run of the VM: what the last one used is of no use.
    if facts.pod != vm.facts.pod && !facts.running {
        vm.load = Load::default();
    }
    vm.facts = facts;
}

fn share(used: f64, account: Option<ResourceView>, sizes: f64, total: f64) -> Share {
    match account {
        Some(view) => Share {
            used,
            permitted: float(view.reserved),
            pressure: float(view.capacity_pressure),
            watermark: Some(float(view.watermark)),
            total: float(view.total),
        },
        None => Share { used, permitted: sizes, total, ..Share::default() },
    }
}

/// Decisions after the last one that is known.
fn decisions<'a>(
    key: &'a Key,
    why: &'a VmInspect,
    last: Option<&'a neonvm_types::agent_inspect::Decision>,
) -> impl Iterator<Item = Entry> + 'a {
    let seen = last.and_then(|last| why.decisions.iter().rposition(|decision| decision == last));
    why.decisions.iter().skip(seen.map_or(0, |at| at + 1)).map(|decision| Entry {
        at: decision.at.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_millisecond),
        id: format!("{}/{}/{}/{}", key.namespace, key.name, decision.at, decision.text),
        kind: Kind::Decision,
        vm: key.clone(),
        text: match &decision.reason {
            Some(reason) => format!("{} ({reason})", decision.text),
            None => decision.text.clone(),
        },
    })
}

/// Applies a change to the objects of one kind; what is known beside the facts stays.
fn apply<K: Ord, T, V: Default>(all: &mut BTreeMap<K, V>, change: Change<K, T>, set: impl Fn(&mut V, T)) {
    match change {
        Change::All(listed) => {
            let mut before = std::mem::take(all);
            for (key, facts) in listed {
                let mut value = before.remove(&key).unwrap_or_default();
                set(&mut value, facts);
                all.insert(key, value);
            }
        }
        Change::Set(key, facts) => set(all.entry(key).or_default(), facts),
        Change::Gone(key) => drop(all.remove(&key)),
    }
}
