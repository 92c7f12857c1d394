//! `top vms`: what VMs use, from two readings of their counters.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::api::ListParams;
use neonvm_api::VirtualMachine;
use neonvm_types::runner_protocol::RunnerStatistics;
use neonvm_types::{Bytes, MilliCpu};
use serde_json::{Value, json};

use super::Key;
use crate::args::top::Vms;
use crate::commands::counters::{self, Rates, rates};
use crate::commands::resource::NamespaceClient;
use crate::commands::resource::name_of;
use crate::commands::vm::size::{cores, in_units};
use crate::commands::vm::table::observed;
use crate::connect::block_on;
use crate::error::Result;
use crate::live::size::float;
use crate::report::{API_VERSION, Column, Document, Report, left, right, wide};
use crate::settings::Settings;

/// Shown for what there is not.
pub(super) const NONE: &str = "-";

/// Runners that are read at the same time.
const AT_ONCE: usize = 16;
/// Time for the response of a runner.
const DEADLINE: Duration = Duration::from_secs(5);
/// Time between the two readings.
const BETWEEN: Duration = Duration::from_millis(500);

/// Counters of a pod, which is one run of a VM, or why there are none.
type Counters = BTreeMap<(String, String), std::result::Result<RunnerStatistics, String>>;

/// The table of VMs and what they use.
pub(super) fn run(settings: &Settings, args: &Vms) -> Result<Report> {
    let all = settings.place().all_namespaces;
    let column = super::column(&columns(all), args.sort_by.as_deref().unwrap_or("cpu-use"))?;
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let api = client.api_of::<VirtualMachine>(all);
        let list = client.connection.within("cannot list VMs", api.list(&ListParams::default())).await?;
        let usages: Vec<Usage> = list.items.iter().map(Usage::from_machine).collect();
        let (before, ()) = tokio::join!(read(&client, &usages), tokio::time::sleep(BETWEEN));
        // A runner that did not respond is not asked again.
        let responds = |usage: &&Usage| matches!(before.get(&usage.run()), Some(Ok(_)));
        let again: Vec<Usage> = usages.iter().filter(responds).cloned().collect();
        let now = read(&client, &again).await;
        let usages = usages.into_iter().map(|usage| {
            let run = usage.run();
            match (before.get(&run), now.get(&run)) {
                (Some(Ok(before)), Some(Ok(now))) => usage.with(Some(before), now),
                (Some(Err(trouble)), _) | (_, Some(Err(trouble))) => {
                    Usage { trouble: Some(trouble.clone()), ..usage }
                }
                _ => usage,
            }
        });
        let usages = super::sorted(usages.collect(), column, |usage| usage.keys(all));
        Ok(report(&client, &usages, all))
    })
}

/// The counters of each running VM.
async fn read(client: &NamespaceClient, usages: &[Usage]) -> Counters {
    let running = usages.iter().filter(|usage| !usage.pod.is_empty());
    let requests = running.map(|usage| {
        let client =
            NamespaceClient { connection: client.connection.clone(), namespace: usage.namespace.clone() };
        async move {
            let response = tokio::time::timeout(DEADLINE, counters::read(&client, &usage.pod)).await;
            (usage.run(), response.unwrap_or_else(|_| Err(format!("no response within {DEADLINE:?}"))))
        }
    });
    futures_util::stream::iter(requests).buffer_unordered(AT_ONCE).collect().await
}

fn report(client: &NamespaceClient, usages: &[Usage], all: bool) -> Report {
    let items: Vec<_> = usages.iter().map(Usage::value).collect();
    let mut report = Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "VirtualMachineUsageList", "items": items }),
        names: usages.iter().map(|usage| format!("virtualmachine/{}", usage.name)).collect(),
        text: None,
        columns: columns(all),
        rows: usages.iter().map(|usage| usage.row(all)).collect(),
    });
    for usage in usages {
        if let Some(trouble) = &usage.trouble {
            report = report.note(format!("{}: no statistics: {trouble}", usage.name));
        }
    }
    match (usages.is_empty(), all) {
        (false, _) => report,
        (true, true) => report.note("no VMs in any namespace"),
        (true, false) => report.note(format!("no VMs in namespace {}", client.namespace)),
    }
}

/// A VM and what it uses.
#[derive(Clone, Debug, Default, PartialEq)]
struct Usage {
    namespace: String,
    name: String,
    node: String,
    pod: String,
    cpu: MilliCpu,
    memory: Bytes,
    rates: Rates,
    memory_used: Option<Bytes>,
    /// Why there are no numbers.
    trouble: Option<String>,
}

impl Usage {
    /// From the object; no usage is known yet.
    fn from_machine(machine: &VirtualMachine) -> Self {
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

    /// What identifies this run of the VM.
    fn run(&self) -> (String, String) {
        (self.namespace.clone(), self.pod.clone())
    }

    /// Adds the usage by counters.
    fn with(mut self, before: Option<&RunnerStatistics>, now: &RunnerStatistics) -> Self {
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
    fn keys(&self, namespaces: bool) -> Vec<Key> {
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
    fn row(&self, namespaces: bool) -> Vec<String> {
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
            self.memory_used.map_or_else(|| NONE.to_owned(), |used| crate::render::bytes(used.get())),
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
    fn value(&self) -> Value {
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

fn columns(namespaces: bool) -> Vec<Column> {
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
