//! The fleet as JSON, for the dashboard. CPU is in CPUs, memory in bytes; what is not known is null.

use neonvm_types::Resources;
use serde_json::{Value, json};

use super::input::{Key, MoveFacts};
use super::model::{Fleet, Node, Share, Vm};
use super::series::{KEPT, Point, STEP};
use super::size::{float, known, range, units};

/// Entries of the stream in a state.
const ENTRIES: usize = 40;
/// Bytes of a GiB.
const GIB: f32 = 1_073_741_824.0;

pub(crate) fn state(fleet: &Fleet) -> Value {
    let stream = fleet.stream.newest().take(ENTRIES);
    let stream = stream.map(|entry| {
        json!({ "at": entry.at, "kind": entry.kind.word(), "namespace": entry.vm.namespace, "vm": entry.vm.name,
            "text": entry.text })
    });
    let moves = fleet.shown_moves();
    json!({
        "cluster": fleet.cluster,
        "namespace": fleet.namespace,
        "now": fleet.now,
        "nodes": fleet.nodes.iter().map(|(name, one)| node(fleet, name, one)).collect::<Vec<_>>(),
        "vms": fleet.vms.iter().map(|(key, one)| vm(key, one)).collect::<Vec<_>>(),
        "moves": moves.into_iter().map(|(key, facts)| migration(fleet, key, facts)).collect::<Vec<_>>(),
        "stream": stream.collect::<Vec<_>>(),
        "problems": fleet.troubles.iter().map(|(origin, text)| json!({ "what": origin.what(), "text": text }))
            .collect::<Vec<_>>(),
    })
}

pub(crate) fn history(fleet: &Fleet) -> Value {
    let vms = fleet.vms.iter().map(|(key, vm)| {
        let points: Vec<Value> = vm.series.points().map(point).collect();
        json!({ "namespace": key.namespace, "name": key.name, "points": points })
    });
    json!({ "step": STEP, "kept": KEPT, "vms": vms.collect::<Vec<_>>() })
}

/// Why a VM has the size it has: labels and texts, as in `top`.
pub(crate) fn why(fleet: &Fleet, key: &Key) -> Option<Value> {
    let vm = fleet.vms.get(key)?;
    let facts = super::view::facts(fleet, key, vm);
    let facts: Vec<Value> =
        facts.into_iter().map(|(label, text)| json!({ "label": label, "text": text })).collect();
    let decisions = vm.why.iter().flat_map(|why| why.decisions.iter().rev());
    let decisions: Vec<Value> =
        decisions.map(|one| json!({ "at": one.at, "text": one.text, "reason": one.reason })).collect();
    Some(json!({ "facts": facts, "decisions": decisions, "scaled": vm.facts.scaled }))
}

fn node(fleet: &Fleet, name: &str, node: &Node) -> Value {
    let (cpu, memory) = fleet.shares(name, node);
    let note = node.account.as_ref().and_then(|account| account.note.as_ref());
    json!({ "name": name, "closed": node.facts.closed, "note": note, "cpu": share(&cpu, 1000.0),
        "memory": share(&memory, 1.0) })
}

fn share(share: &Share, one: f64) -> Value {
    json!({ "used": share.used / one, "permitted": share.permitted / one, "pressure": share.pressure / one,
        "watermark": share.watermark.map(|mark| mark / one), "total": share.total / one })
}

fn vm(key: &Key, vm: &Vm) -> Value {
    let facts = &vm.facts;
    let (unit, size) = (vm.unit(), facts.size);
    let cpu = |size: Resources| size.vcpus.as_f64();
    let bytes = |size: Resources| float(size.mem.get());
    let permit = vm.why.as_ref().and_then(|why| why.permit);
    let amounts = |of: &dyn Fn(Resources) -> f64, used: Option<f64>| {
        json!({ "used": used, "size": Some(size).filter(|size| known(*size)).map(of), "goal": vm.goal().map(of),
            "permit": permit.map(of), "min": of(facts.min), "max": of(facts.max) })
    };
    json!({
        "namespace": key.namespace,
        "name": key.name,
        "node": facts.node,
        "phase": facts.phase,
        "running": facts.running,
        "scaled": facts.scaled,
        "units": units(size, unit),
        "goalUnits": vm.goal().filter(|goal| *goal != size).map(|goal| units(goal, unit)),
        "range": range(facts.min, facts.max, unit),
        "cpu": amounts(&cpu, vm.load.cpu),
        "memory": amounts(&bytes, vm.load.memory.map(float)),
        "state": vm.state(),
        "stuck": vm.why.as_ref().is_some_and(|why| why.stuck.is_some()),
        "problem": vm.trouble,
        "point": vm.series.points().next_back().map(point),
    })
}

/// Time; load, goal, permit and size of CPU; the same of memory.
fn point(point: &Point) -> Value {
    let bytes = |gib: Option<f32>| gib.map(|gib| gib * GIB);
    let (cpu, memory) = (&point.cpu, &point.memory);
    json!([
        point.at,
        cpu.load,
        cpu.goal,
        cpu.permit,
        cpu.size,
        bytes(memory.load),
        bytes(memory.goal),
        bytes(memory.permit),
        bytes(memory.size)
    ])
}

fn migration(fleet: &Fleet, key: &Key, facts: &MoveFacts) -> Value {
    json!({ "namespace": key.namespace, "name": key.name, "vm": facts.vm, "source": facts.source, "target": facts.target,
        "phase": facts.phase, "percent": facts.percent, "text": facts.text, "by": facts.by, "failed": facts.failed,
        "ended": facts.ended.is_some(),
        "seconds": (facts.ended.unwrap_or(fleet.now) - facts.created).max(0) / 1000 })
}
