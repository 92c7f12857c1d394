//! What machines use, from two looks at their counters. Pure.

use neonvm_api::VirtualMachine;
use neonvm_types::runner_protocol::RunnerStatistics;
use neonvm_types::{Bytes, MilliCpu};
use serde_json::{Value, json};

use super::order::Key;
use crate::commands::place;
use crate::commands::resource::name_of;
use crate::commands::vm::size::{cores, in_units};
use crate::commands::vm::table::observed;
use crate::report::{Column, left, right, wide};

/// Shown for what there is not.
pub(super) const NONE: &str = "-";

/// What happened between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::commands) struct Rates {
    /// CPUs in use.
    pub(in crate::commands) cpu: Option<f64>,
    /// Share of the time of its CPUs that others on the host took, 0 to 1.
    pub(in crate::commands) steal: Option<f64>,
    /// Share of the time of its CPUs in which its limit held it back, 0 to 1.
    pub(in crate::commands) throttled: Option<f64>,
}

/// Rates between two looks at the same QEMU: counters over its own clock. `cpus` are those of the VM. None of them
/// if the later look is of an earlier time, as after a restart.
pub(in crate::commands) fn rates(before: &RunnerStatistics, now: &RunnerStatistics, cpus: u32) -> Rates {
    let Some(elapsed) = now.uptime_ms.checked_sub(before.uptime_ms).filter(|elapsed| *elapsed > 0) else {
        return Rates::default();
    };
    let elapsed = float(elapsed) * 1000.0;
    let all = elapsed * f64::from(cpus.max(1));
    let grown = |before: u64, now: u64| now.checked_sub(before).map(float);
    Rates {
        cpu: grown(before.cpu_us, now.cpu_us).map(|used| used / elapsed),
        steal: before
            .steal_us
            .zip(now.steal_us)
            .and_then(|(before, now)| grown(before, now))
            .map(|taken| (taken / all).min(1.0)),
        throttled: grown(before.throttled_us, now.throttled_us).map(|held| (held / all).min(1.0)),
    }
}

/// For people, with two places.
pub(super) fn float(number: u64) -> f64 {
    number as f64
}

/// A VM and what it uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Usage {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) node: String,
    pub(super) pod: String,
    pub(super) cpu: MilliCpu,
    pub(super) memory: Bytes,
    pub(super) rates: Rates,
    pub(super) memory_used: Option<Bytes>,
    /// Why there are no numbers.
    pub(super) trouble: Option<String>,
}

impl Usage {
    /// From the object; no usage is known yet.
    pub(super) fn from_machine(machine: &VirtualMachine) -> Self {
        let status = machine.status.as_ref();
        let alive = status.and_then(|status| status.phase).is_some_and(|phase| phase.is_alive());
        let (cpu, memory) = observed(machine);
        Self {
            namespace: machine.metadata.namespace.clone().unwrap_or_default(),
            name: name_of(machine).to_owned(),
            node: status.map(|status| status.node.clone()).unwrap_or_default(),
            // What does not run uses nothing and cannot be asked.
            pod: status.filter(|_| alive).map(|status| status.pod_name.clone()).unwrap_or_default(),
            cpu,
            memory,
            ..Self::default()
        }
    }

    /// Adds the usage by counters.
    pub(super) fn with(mut self, before: Option<&RunnerStatistics>, now: &RunnerStatistics) -> Self {
        self.memory_used = Some(now.guest_used.unwrap_or(now.resident)).filter(|used| *used > Bytes::ZERO);
        if let Some(before) = before {
            self.rates = rates(before, now, self.cpu.cpus_rounded_up());
        }
        self
    }

    fn cpu_share(&self) -> Option<f64> {
        self.rates.cpu.filter(|_| self.cpu > MilliCpu::ZERO).map(|used| used / self.cpu.as_f64())
    }

    fn memory_share(&self) -> Option<f64> {
        let used = self.memory_used.filter(|_| self.memory > Bytes::ZERO)?;
        Some(float(used.get()) / float(self.memory.get()))
    }

    /// What its cells are sorted by.
    pub(super) fn keys(&self, namespaces: bool) -> Vec<Key> {
        let units = in_units(self.cpu, self.memory).map(f64::from);
        let text = |text: &str| Key::Text(text.to_owned());
        let mut keys = vec![
            text(&self.name),
            text(&self.node),
            Key::Number(units),
            Key::Number(self.rates.cpu),
            Key::Number(Some(self.cpu.as_f64())),
            Key::Number(self.cpu_share()),
            Key::Number(self.memory_used.map(|used| float(used.get()))),
            Key::Number(Some(float(self.memory.get()))),
            Key::Number(self.memory_share()),
            Key::Number(self.rates.steal),
            Key::Number(self.rates.throttled),
            text(self.trouble.as_deref().unwrap_or_default()),
        ];
        if namespaces {
            keys.insert(0, text(&self.namespace));
        }
        keys
    }

    /// Its cells.
    pub(super) fn row(&self, namespaces: bool) -> Vec<String> {
        let sized = self.cpu > MilliCpu::ZERO;
        let known = |text: String, known: bool| if known { text } else { NONE.to_owned() };
        let units = in_units(self.cpu, self.memory);
        let mut cells = vec![
            self.name.clone(),
            known(self.node.clone(), !self.node.is_empty()),
            units.map_or_else(|| NONE.to_owned(), |units| units.to_string()),
            self.rates.cpu.map_or_else(|| NONE.to_owned(), |used| format!("{used:.2}")),
            known(cores(self.cpu), sized),
            percent(self.cpu_share(), 0),
            self.memory_used.map_or_else(|| NONE.to_owned(), |used| place::bytes(used.get())),
            known(self.memory.to_string(), sized),
            percent(self.memory_share(), 0),
            percent(self.rates.steal, 1),
            percent(self.rates.throttled, 1),
            self.trouble.clone().unwrap_or_else(|| NONE.to_owned()),
        ];
        if namespaces {
            cells.insert(0, self.namespace.clone());
        }
        cells
    }

    /// Its JSON form; what is not known is left out.
    pub(super) fn value(&self) -> Value {
        let all = json!({ "namespace": self.namespace, "name": self.name, "node": self.node, "pod": self.pod,
            "computeUnits": in_units(self.cpu, self.memory),
            "cpu": { "used": self.rates.cpu.map(rounded), "allocated": self.cpu.as_f64(),
                "usedPercent": self.cpu_share().map(hundredfold), "stealPercent": self.rates.steal.map(hundredfold),
                "throttledPercent": self.rates.throttled.map(hundredfold) },
            "memory": { "usedBytes": self.memory_used.map(Bytes::get), "allocatedBytes": self.memory.get(),
                "usedPercent": self.memory_share().map(hundredfold) },
            "error": self.trouble });
        without_nulls(all)
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect(),
        other => other,
    }
}

/// With three places.
fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// A share in percent, with one place.
pub(super) fn hundredfold(share: f64) -> f64 {
    (share * 1000.0).round() / 10.0
}

/// A share as `81%`.
pub(super) fn percent(share: Option<f64>, places: usize) -> String {
    share.map_or_else(|| NONE.to_owned(), |share| format!("{:.places$}%", share * 100.0))
}

/// The columns.
pub(super) fn columns(namespaces: bool) -> Vec<Column> {
    let mut columns = vec![
        left("VM"),
        left("NODE"),
        right("CU"),
        right("CPU-USE"),
        right("CPU-ALLOC"),
        right("CPU%"),
        right("MEM-USE"),
        right("MEM-ALLOC"),
        right("MEM%"),
        right("STEAL"),
        right("THROTTLED"),
        wide("NOTE"),
    ];
    if namespaces {
        columns.insert(0, left("NAMESPACE"));
    }
    columns
}

#[cfg(test)]
mod tests;
