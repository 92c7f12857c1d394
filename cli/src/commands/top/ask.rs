//! Asking the VMs' runners for their counters.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::api::{Api, ListParams};
use neonvm_api::VirtualMachine;
use neonvm_types::runner_protocol::RunnerStatistics;
use serde_json::json;

use super::vms::{Usage, columns};
use super::{Frame, order};
use crate::args::top::Vms;
use crate::commands::flags::duration;
use crate::commands::resource::client::NamespaceClient;
use crate::commands::vm::exec;
use crate::error::Result;
use crate::report::{API_VERSION, Document};
use crate::settings::Settings;

/// NamespaceClient asked at the same time.
const AT_ONCE: usize = 16;
/// Bounds of the time for a VM's answer: it is that between two looks.
const DEADLINE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// Time between the two looks of which the first numbers are made.
const FIRST: Duration = Duration::from_millis(500);

/// Counters by namespace and pod: a pod is one run of a VM.
type Counters = BTreeMap<(String, String), RunnerStatistics>;
/// Counters, or why there are none.
type Answers = BTreeMap<(String, String), std::result::Result<RunnerStatistics, String>>;

/// NamespaceClient and their last counters.
pub(super) struct Source {
    client: NamespaceClient,
    all: bool,
    column: usize,
    deadline: Duration,
    before: Option<Counters>,
}

impl Source {
    pub(super) async fn open(settings: &Settings, args: &Vms) -> Result<Self> {
        let field = args.repeat.sort_by.as_deref().unwrap_or("cpu-use");
        let column = order::column(&columns(args.all_namespaces), field)?;
        let deadline = if args.repeat.once {
            DEADLINE.1
        } else {
            duration("interval", &args.repeat.interval)?.clamp(DEADLINE.0, DEADLINE.1)
        };
        let client = NamespaceClient::open(settings, &args.place).await?;
        Ok(Self { client, all: args.all_namespaces, column, deadline, before: None })
    }

    /// What machines use since the last look; the first one takes a moment.
    pub(super) async fn frame(&mut self) -> Result<Frame> {
        let api: Api<VirtualMachine> = if self.all {
            Api::all(self.client.connection.client())
        } else {
            self.client.api::<VirtualMachine>()
        };
        let parameters = ListParams::default();
        let list = api.list(&parameters);
        let list = self.client.connection.within("cannot list VMs", list).await?;
        let usages: Vec<Usage> = list.items.iter().map(Usage::from_machine).collect();
        let (before, now) = match self.before.take() {
            Some(before) => (before, self.counters(&usages).await),
            None => self.first(&usages).await,
        };
        let usages = usages.into_iter().map(|usage| {
            let at = at(&usage);
            match now.get(&at) {
                Some(Ok(counters)) => usage.with(before.get(&at), counters),
                Some(Err(trouble)) => Usage { trouble: Some(trouble.clone()), ..usage },
                None => usage,
            }
        });
        let usages = order::sorted(usages.collect(), self.column, |usage| usage.keys(self.all));
        self.before = Some(known(&now));
        Ok(self.shown(&usages))
    }

    /// Two looks, a moment apart. Who did not answer the first time is not asked a second time.
    async fn first(&self, usages: &[Usage]) -> (Counters, Answers) {
        let (first, ()) = tokio::join!(self.counters(usages), tokio::time::sleep(FIRST));
        let answers = |usage: &&Usage| matches!(first.get(&at(usage)), Some(Ok(_)));
        let asked: Vec<Usage> = usages.iter().filter(answers).cloned().collect();
        let mut now = self.counters(&asked).await;
        let before = known(&first);
        now.extend(first.into_iter().filter(|(_, answer)| answer.is_err()));
        (before, now)
    }

    /// The counters of each running machine.
    async fn counters(&self, usages: &[Usage]) -> Answers {
        let running = usages.iter().filter(|usage| !usage.pod.is_empty());
        let asked = running.map(|usage| {
            let connection = self.client.connection.clone();
            let client = NamespaceClient { connection, namespace: usage.namespace.clone() };
            async move {
                let answer = tokio::time::timeout(self.deadline, ask(&client, &usage.pod)).await;
                let late = || Err(format!("no response within {:?}", self.deadline));
                (at(usage), answer.unwrap_or_else(|_| late()))
            }
        });
        futures_util::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await
    }

    fn shown(&self, usages: &[Usage]) -> Frame {
        let place = if self.all {
            "any namespace".to_owned()
        } else {
            format!("namespace {}", self.client.namespace)
        };
        let mut notes: Vec<String> = usages
            .iter()
            .filter_map(|usage| Some(format!("{}: no statistics: {}", usage.name, usage.trouble.as_ref()?)))
            .collect();
        if usages.is_empty() {
            notes.push(format!("no VMs in {place}"));
        }
        let items: Vec<_> = usages.iter().map(Usage::value).collect();
        Frame {
            document: Document {
                value: json!({ "apiVersion": API_VERSION, "kind": "VirtualMachineUsageList", "items": items }),
                names: usages.iter().map(|usage| format!("virtualmachine/{}", usage.name)).collect(),
                text: None,
                columns: columns(self.all),
                rows: usages.iter().map(|usage| usage.row(self.all)).collect(),
            },
            notes,
        }
    }
}

/// By what its counters are kept.
fn at(usage: &Usage) -> (String, String) {
    (usage.namespace.clone(), usage.pod.clone())
}

fn known(answers: &Answers) -> Counters {
    let known = |(at, answer): (&(String, String), &std::result::Result<_, String>)| {
        Some((at.clone(), *answer.as_ref().ok()?))
    };
    answers.iter().filter_map(known).collect()
}

/// The counters of a VM's runner, or why there are none.
pub(in crate::commands) async fn ask(
    client: &NamespaceClient,
    pod: &str,
) -> std::result::Result<RunnerStatistics, String> {
    let output = exec::output(client, pod, &["statistics"]).await.map_err(|error| {
        let causes = error.causes.last().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{}{causes}", error.message)
    })?;
    serde_json::from_str(&output).map_err(|_| "invalid statistics from its runner".to_owned())
}
