//! The core on one thread, without anything around it.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use neonvm_core_scheduling::permits::{Event, NodeSeen, Pair, PodSeen, Request, Settings, State, VmSeen};
use neonvm_types::{Bytes, MilliCpu, NamespacedName, Resources};

use super::{NAME, NODES, VMS, node, pod, wanted};
use crate::report::{Row, Rows, quantile};

const REQUESTS: usize = 4_000_000;
const EVENTS: usize = 20_000;

/// Compute units of one CPU and four gibibytes.
fn units(count: u64) -> Resources {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    Resources::new(MilliCpu::new(count * 1000), Bytes::gib(4 * count))
}

fn seen(name: String, allocatable: u64) -> Event {
    let total = Pair::from(units(allocatable));
    Event::Node(Box::new(NodeSeen { name, total, ..NodeSeen::default() }))
}

fn vm(number: usize) -> Event {
    let vm = VmSeen {
        name: format!("vm-{number}"),
        scaled: true,
        max: Some(units(8)),
        slot_size: Some(Bytes::gib(1)),
        overcommit: Pair::both(1000),
        ..VmSeen::default()
    };
    Event::Pod(Box::new(PodSeen {
        pod: NamespacedName::new("default", pod(number)),
        uid: format!("uid-{number}"),
        node: Some(node(number)),
        usage: Pair::from(units(1)),
        vm: Some(vm),
        ..PodSeen::default()
    }))
}

pub(super) fn run(rows: &mut Rows) -> anyhow::Result<()> {
    let mut state = State::new(Settings::default());
    for number in 0..NODES {
        state.step(Duration::ZERO, seen(node(number), 100));
    }
    for number in 0..VMS {
        state.step(Duration::ZERO, vm(number));
    }
    state.step(Duration::ZERO, Event::Listed);
    for (what, stride) in [("core, agents in order", 1), ("core, agents in any order", 7919)] {
        let rate = requests(&mut state, stride)?;
        let lookups = lookups(stride)?;
        rows.push(Row::at_least(NAME, what, rate, "requests/s", 1e6).note(format!(
            "one thread, {NODES} nodes, {VMS} VMs, {REQUESTS} requests; reference: {lookups:.0} lookups/s of a name in a map \
             of {VMS}, in the same order"
        )))?;
    }
    let mut times = events(&mut state);
    let (p99, most) = (quantile(&mut times, 0.99), quantile(&mut times, 1.0));
    rows.push(
        Row::at_most(NAME, "core, node event → state updated, p99", p99, "µs", 1e3)
            .note(format!("{EVENTS} events, each with another size of a node; longest {most:.0} µs")),
    )
}

fn pods() -> Vec<NamespacedName> {
    (0..VMS).map(|number| NamespacedName::new("default", pod(number))).collect()
}

fn requests(state: &mut State, stride: usize) -> anyhow::Result<f64> {
    let pods = pods();
    let mut held = vec![None; pods.len()];
    let (begun, mut at, mut permitted) = (Instant::now(), 0, 0_usize);
    for round in 0..REQUESTS {
        at = (at + stride) % pods.len();
        let (pod, held) = (pods.get(at).context("no pod")?, held.get_mut(at).context("no pod")?);
        let request = Request::new(units(1), units(wanted(round, at)), *held);
        let reply = state.request(Duration::from_micros(round as u64), pod, &request)?;
        *held = Some(reply.permit);
        permitted += 1;
    }
    ensure!(permitted == REQUESTS, "not all requests were answered");
    Ok(REQUESTS as f64 / begun.elapsed().as_secs_f64())
}

/// What the processor and its caches do on this host: names of pods found in a map, per second.
fn lookups(stride: usize) -> anyhow::Result<f64> {
    let pods = pods();
    let map: BTreeMap<NamespacedName, usize> = pods.iter().cloned().zip(0..).collect();
    let (begun, mut at) = (Instant::now(), 0);
    for _ in 0..REQUESTS {
        at = (at + stride) % pods.len();
        let pod = pods.get(at).context("no pod")?;
        ensure!(black_box(map.get(black_box(pod))) == Some(&at), "another pod was found");
    }
    Ok(REQUESTS as f64 / begun.elapsed().as_secs_f64())
}

/// Microseconds of each.
fn events(state: &mut State) -> Vec<f64> {
    let one = |round: usize| {
        let event = seen(node(round * 7919), 100 + (round as u64 % 2));
        let begun = Instant::now();
        state.step(Duration::from_secs(10_000), event);
        begun.elapsed().as_secs_f64() * 1e6
    };
    (0..EVENTS).map(one).collect()
}
