//! What is recorded for plots.

use neonvm_core_scheduling::permits::Pair;
use neonvm_core_vertical_scaling::agent::units;
use neonvm_types::Resources;

use super::event::Event;
use super::model::Vm;
use super::{World, duration};
use crate::Record;
use crate::outcome::{NodeSeries, Series, VmSeries};
use crate::queue::{SECOND, Time};

#[derive(Debug)]
pub(crate) struct Recorder {
    series: Series,
    vms: usize,
}

impl Recorder {
    pub(super) fn new(record: Record, vms: &mut [Vm]) -> Option<Self> {
        let most = match record {
            Record::None => return None,
            Record::Nodes => 0,
            Record::NodesAndVms(most) => most.min(vms.len()),
        };
        for vm in vms.iter_mut().take(most) {
            vm.record = true;
        }
        Some(Self { series: Series::default(), vms: most })
    }

    pub(super) fn into_series(self) -> Series {
        self.series
    }
}

/// An amount in compute units, by the fuller of CPU and memory.
fn in_units(size: Resources, unit: Resources) -> f64 {
    let cpu = size.vcpus.as_f64() / unit.vcpus.as_f64().max(0.001);
    cpu.max(size.mem.get() as f64 / (unit.mem.get() as f64).max(1.0))
}

fn narrow(sum: Pair<u128>) -> Resources {
    sum.map(|sum| u64::try_from(sum).unwrap_or(u64::MAX)).resources()
}

impl World {
    /// One point of each line.
    pub(super) fn record(&mut self) {
        let Some(mut recorder) = self.recorder.take() else { return };
        let series = &mut recorder.series;
        if series.times.is_empty() {
            series.nodes = self
                .nodes
                .iter()
                .map(|node| NodeSeries {
                    name: node.name.clone(),
                    capacity: node.total.resources(),
                    ..NodeSeries::default()
                })
                .collect();
            series.vms = self
                .vms
                .iter()
                .take(recorder.vms)
                .map(|vm| VmSeries { name: vm.name.clone(), ..VmSeries::default() })
                .collect();
        }
        series.times.push(duration(self.now));
        self.record_nodes(&mut series.nodes);
        for (line, vm) in series.vms.iter_mut().zip(self.vms.iter()) {
            self.record_vm(line, vm);
        }
        let points = series.times.len();
        self.recorder = Some(recorder);
        if points < Series::MOST_POINTS {
            let pause: Time = (self.ends / Series::MOST_POINTS as u64).max(SECOND);
            self.after(pause, Event::Record);
        }
    }

    fn record_nodes(&self, lines: &mut [NodeSeries]) {
        let leader = self.leader.and_then(|leader| self.replicas.get(leader));
        let totals = leader.map(|one| one.state.totals()).unwrap_or_default();
        let mut totals = totals.iter().peekable();
        let mut order: Vec<usize> = (0..lines.len()).collect();
        // The scheduler's are by name.
        order.sort_by_key(|index| lines.get(*index).map(|line| line.name.clone()));
        for index in order {
            let (Some(line), Some(node)) = (lines.get_mut(index), self.nodes.get(index)) else { continue };
            let mut reserved = line.reserved.last().copied().unwrap_or_default();
            while let Some((seen, cpu, mem)) = totals.next_if(|(seen, ..)| seen.name <= node.name) {
                if seen.name == node.name {
                    reserved = Pair::new(cpu.reserved, mem.reserved).resources();
                }
            }
            line.reserved.push(reserved);
            line.used.push(if node.lost { Resources::default() } else { narrow(node.used) });
        }
    }

    fn record_vm(&self, line: &mut VmSeries, vm: &Vm) {
        let unit = self.unit;
        let (cpu, memory) = (vm.guest.cpu_level, vm.guest.memory_level);
        line.demand.push(cpu.max(memory));
        line.size.push(in_units(vm.has, unit));
        let view = vm.agent.as_deref().map(|agent| agent.state.view(duration(self.now)));
        line.goal.push(view.as_ref().map_or(0.0, |view| f64::from(units::ceil(view.goal, unit))));
        let permit = view.and_then(|view| view.permit);
        line.permit.push(permit.map_or(0.0, |permit| in_units(permit, unit)));
    }
}
