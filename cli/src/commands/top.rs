//! `top`: the live view, or a table of what VMs use, from two readings of their counters.

mod live;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::ListParams;
use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::Phase;
use neonvm_types::{Bytes, MilliCpu};
use serde_json::{Value, json};

use crate::args::Args;
use crate::args::top::{Command, Top, Vms};
use crate::commands::live::counters::{Target, read};
use crate::commands::resource::{NONE, NamespaceClient, name_of, or_none};
use crate::commands::vm::size::{cores, in_units};
use crate::commands::vm::table::{limited, observed};
use crate::connect::block_on;
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::live::input::{Key, Load};
use crate::live::size::float;
use crate::report::{API_VERSION, Column, Document, Report, left, right, wide};
use crate::settings::Settings;

/// Runners that are read at the same time.
const AT_ONCE: usize = 16;
/// Time between the two readings.
const BETWEEN: Duration = Duration::from_millis(500);

pub(super) fn run(env: &Env, settings: &Settings, args: &Args, top: &Top) -> Result<Report> {
    match &top.command {
        None => live::run(env, settings, args, &top.live),
        Some(Command::Vms(args)) => vms(settings, args),
    }
}

fn vms(settings: &Settings, args: &Vms) -> Result<Report> {
    let all = settings.place().all_namespaces;
    let column = column(&columns(all), args.sort_by.as_deref().unwrap_or("cpu-use"))?;
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let api = client.api_of::<VirtualMachine>(all);
        let list = client.connection.within("cannot list VMs", api.list(&ListParams::default())).await?;
        let mut usages: BTreeMap<Key, Usage> = list.items.iter().map(Usage::from_machine).collect();
        let mut before = BTreeMap::new();
        for pause in [BETWEEN, Duration::ZERO] {
            // A runner that did not respond is not asked again.
            let running = usages.iter().filter(|(_, usage)| !usage.pod.is_empty() && usage.trouble.is_none());
            let target = |(key, usage): (&Key, &Usage)| Target {
                key: key.clone(),
                pod: usage.pod.clone(),
                cpus: usage.cpu.cpus_rounded_up(),
            };
            let targets = running.map(target).collect();
            let read = read(&client.connection, targets, AT_ONCE, &mut before);
            let (loads, ()) = tokio::join!(read, tokio::time::sleep(pause));
            for (key, load) in loads {
                let Some(usage) = usages.get_mut(&key) else { continue };
                match load {
                    Ok(load) => usage.load = load,
                    Err(trouble) => usage.trouble = Some(trouble),
                }
            }
        }
        let mut usages: Vec<(Key, Usage)> = usages.into_iter().collect();
        usages.sort_by(|one, other| {
            let cell = |(key, usage): &(Key, Usage)| usage.sorted_by(key, all).into_iter().nth(column);
            cell(one).zip(cell(other)).map_or(Ordering::Equal, |(one, other)| one.compare(&other))
        });
        Ok(report(&client, &usages, all))
    })
}

fn report(client: &NamespaceClient, usages: &[(Key, Usage)], all: bool) -> Report {
    let items: Vec<_> = usages.iter().map(|(key, usage)| usage.value(key)).collect();
    let mut report = Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "VirtualMachineUsageList", "items": items }),
        names: usages.iter().map(|(key, _)| format!("virtualmachine/{}", key.name)).collect(),
        text: None,
        columns: columns(all),
        rows: usages.iter().map(|(key, usage)| usage.row(key, all)).collect(),
    });
    for (key, usage) in usages {
        if let Some(trouble) = &usage.trouble {
            report = report.note(format!("{}: no statistics: {trouble}", key.name));
        }
        if !usage.limited.is_empty() {
            report = report.note(format!("{}: {}", key.name, usage.limited));
        }
    }
    match (usages.is_empty(), all) {
        (false, _) => report,
        (true, true) => report.note("no VMs in any namespace"),
        (true, false) => report.note(format!("no VMs in namespace {}", client.namespace)),
    }
}

/// What a cell is sorted by.
#[derive(Clone, Debug, PartialEq)]
enum Cell {
    /// From the largest to the smallest; what is not known comes last.
    Number(Option<f64>),
    Text(String),
}

impl Cell {
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(Some(one)), Self::Number(Some(other))) => other.total_cmp(one),
            (Self::Number(one), Self::Number(other)) => one.is_none().cmp(&other.is_none()),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            (Self::Number(_), Self::Text(_)) | (Self::Text(_), Self::Number(_)) => Ordering::Equal,
        }
    }
}

fn column(columns: &[Column], field: &str) -> Result<usize> {
    columns.iter().position(|column| column.name.eq_ignore_ascii_case(field)).ok_or_else(|| {
        let names: Vec<String> = columns.iter().map(|column| column.name.to_lowercase()).collect();
        Error::new(Code::Usage, format!("cannot sort by {field:?}")).hint(format!("use {}", names.join(", ")))
    })
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Usage {
    node: String,
    pod: String,
    cpu: MilliCpu,
    memory: Bytes,
    load: Load,
    /// Why there are no numbers.
    trouble: Option<String>,
    /// Which limits of its disks bind; empty: none.
    limited: String,
}

impl Usage {
    /// From the object; no usage is known yet.
    fn from_machine(machine: &VirtualMachine) -> (Key, Self) {
        let status = machine.status.as_ref();
        let phase = status.and_then(|status| status.phase);
        let suspended = phase == Some(Phase::Suspended);
        let alive = !suspended && phase.is_some_and(|phase| phase.is_alive());
        let (cpu, memory) = observed(machine);
        let usage = Self {
            node: status.map(|status| status.node.clone()).unwrap_or_default(),
            // What does not run uses nothing and cannot be asked.
            pod: status.filter(|_| alive).map(|status| status.pod_name.clone()).unwrap_or_default(),
            cpu,
            memory,
            trouble: suspended.then(|| "suspended".to_owned()),
            limited: limited(machine).to_owned(),
            ..Self::default()
        };
        (Key::new(machine.metadata.namespace.clone().unwrap_or_default(), name_of(machine)), usage)
    }

    fn cpu_share(&self) -> Option<f64> {
        self.load.cpu.filter(|_| self.cpu > MilliCpu::ZERO).map(|used| used / self.cpu.as_f64())
    }

    fn memory_share(&self) -> Option<f64> {
        let used = self.load.memory.filter(|_| self.memory > Bytes::ZERO)?;
        Some(float(used) / float(self.memory.get()))
    }

    /// For each column what it is sorted by.
    fn sorted_by(&self, key: &Key, namespaces: bool) -> Vec<Cell> {
        let text = |text: &str| Cell::Text(text.to_owned());
        let first = namespaces.then(|| text(&key.namespace));
        let cells = [
            text(&key.name),
            text(&self.node),
            Cell::Number(in_units(self.cpu, self.memory).map(f64::from)),
            Cell::Number(self.load.cpu),
            Cell::Number(Some(self.cpu.as_f64())),
            Cell::Number(self.cpu_share()),
            Cell::Number(self.load.memory.map(float)),
            Cell::Number(Some(float(self.memory.get()))),
            Cell::Number(self.memory_share()),
            Cell::Number(self.load.steal),
            Cell::Number(self.load.throttled),
            text(self.trouble.as_deref().unwrap_or_default()),
        ];
        first.into_iter().chain(cells).collect()
    }

    fn row(&self, key: &Key, namespaces: bool) -> Vec<String> {
        let sized = self.cpu > MilliCpu::ZERO;
        let known = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
        let first = namespaces.then(|| key.namespace.clone());
        let cells = [
            key.name.clone(),
            or_none(&self.node),
            known(in_units(self.cpu, self.memory).map(|units| units.to_string())),
            known(self.load.cpu.map(|used| format!("{used:.2}"))),
            known(sized.then(|| cores(self.cpu))),
            percent(self.cpu_share(), 0),
            known(self.load.memory.map(crate::render::bytes)),
            known(sized.then(|| self.memory.to_string())),
            percent(self.memory_share(), 0),
            percent(self.load.steal, 1),
            percent(self.load.throttled, 1),
            known(self.trouble.clone()),
        ];
        first.into_iter().chain(cells).collect()
    }

    /// Its JSON form; what is not known is left out.
    fn value(&self, key: &Key) -> Value {
        let percent = |share: Option<f64>| share.map(|share| (share * 1000.0).round() / 10.0);
        without_nulls(
            json!({ "namespace": key.namespace, "name": key.name, "node": self.node, "pod": self.pod,
            "computeUnits": in_units(self.cpu, self.memory),
            "cpu": { "used": self.load.cpu.map(|used| (used * 1000.0).round() / 1000.0), "allocated": self.cpu.as_f64(),
                "usedPercent": percent(self.cpu_share()), "stealPercent": percent(self.load.steal),
                "throttledPercent": percent(self.load.throttled) },
            "memory": { "usedBytes": self.load.memory, "allocatedBytes": self.memory.get(),
                "usedPercent": percent(self.memory_share()) },
            "diskLimited": Some(&self.limited).filter(|text| !text.is_empty()),
            "error": self.trouble }),
        )
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

/// A share as `81%`.
fn percent(share: Option<f64>, places: usize) -> String {
    share.map_or_else(|| NONE.to_owned(), |share| format!("{:.places$}%", share * 100.0))
}

fn columns(namespaces: bool) -> Vec<Column> {
    let numbers =
        ["CU", "CPU-USE", "CPU-ALLOC", "CPU%", "MEM-USE", "MEM-ALLOC", "MEM%", "STEAL", "THROTTLED"];
    let first = namespaces.then(|| left("NAMESPACE")).into_iter().chain([left("VM"), left("NODE")]);
    first.chain(numbers.map(right)).chain([wide("NOTE")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> VirtualMachine {
        serde_json::from_value(json!({
            "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": { "name": "pg", "namespace": "db" },
            "spec": { "guest": { "cpus": { "min": "250m", "max": 3, "use": 1 }, "rootDisk": { "image": "img" },
                "memorySlots": { "min": 1, "max": 12, "use": 11 } } },
            "status": { "phase": "Running", "cpus": "2750m", "memorySize": "11Gi", "node": "n1", "podName": "pg-x" } }))
        .unwrap()
    }

    #[test]
    fn a_machine_in_columns() {
        let (key, usage) = Usage::from_machine(&machine());
        let load =
            Load { cpu: Some(2.61), memory: Some(8_900 << 20), steal: Some(0.0027), throttled: Some(0.0) };
        let usage = Usage { load, ..usage };
        let cells = usage.row(&key, true);
        assert_eq!(
            cells,
            ["db", "pg", "n1", "11", "2.61", "2.75", "95%", "8.6Gi", "11Gi", "79%", "0.3%", "0.0%", "-"]
        );
        assert_eq!([columns(true).len(), usage.sorted_by(&key, true).len()], [cells.len(); 2]);
        let value = usage.value(&key);
        assert_eq!(value["cpu"]["used"], 2.61);
        assert_eq!(value["memory"]["usedBytes"], 8_900u64 << 20);
        assert!(value.get("error").is_none());
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let (key, usage) = Usage::from_machine(&VirtualMachine { status: None, ..machine() });
        let usage = Usage { trouble: Some("no response".into()), ..usage };
        assert_eq!(
            usage.row(&key, false),
            ["pg", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "no response"]
        );
        assert_eq!(usage.value(&key)["error"], "no response");
        assert!(usage.value(&key)["cpu"].get("used").is_none());
    }

    #[test]
    fn a_machine_that_has_ended_or_is_suspended_is_not_read() {
        let mut machine = machine();
        for (phase, note) in [(Phase::Failed, None), (Phase::Suspended, Some("suspended"))] {
            machine.status.as_mut().unwrap().phase = Some(phase);
            let usage = Usage::from_machine(&machine).1;
            assert_eq!((usage.pod.as_str(), usage.trouble.as_deref()), ("", note));
        }
    }

    #[test]
    fn large_numbers_first_and_unknown_last() {
        let mut cells = [Some(1.0), None, Some(10.5), Some(2.0)].map(Cell::Number);
        cells.sort_by(Cell::compare);
        assert_eq!(cells, [Some(10.5), Some(2.0), Some(1.0), None].map(Cell::Number));
        assert_eq!(column(&columns(false), "cpu%").unwrap(), 5);
        let error = column(&[left("VM"), right("CPU%")], "colour").unwrap_err();
        assert_eq!((error.code, error.hint.as_deref()), (Code::Usage, Some("use vm, cpu%")));
    }
}
