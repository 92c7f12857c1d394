//! `install`: preflight, objects, waiting, and proof that the services work. Run again it changes what differs, completes what
//! was interrupted, or reports that there is nothing to do.

pub(super) mod apply;
pub(super) mod chosen;
pub(super) mod ready;
pub(super) mod removal;
mod verify;
pub(super) mod why;

use std::time::Duration;

use apply::{Change, Outcome};
use neonvm_deploy::{Choice, Component, Facts, Record, Values, release};
use neonvm_kernel::Progress as _;
use serde_json::{Value, json};

use super::checks::{self, Finding, Group, Verdict, Wanted, read};
use super::flags::duration;
use crate::args::install::{Carrying, Choices, Install};
use crate::commands::object::text;
use crate::connect::{Connection, block_on};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;
use crate::report::{API_VERSION, Body, Document, Report, left, list_of};
use crate::settings::Settings;

pub(super) fn run(env: &Env, settings: &Settings, args: &Install, quiet: bool) -> Result<Report> {
    let own = chosen::of_flags(&args.choices, &Choice::default())?;
    own.values().map_err(|error| chosen::unusable(&error))?;
    if args.dry_run.as_deref() == Some("client") {
        return dry_client(settings, &own);
    }
    let limit = duration("timeout", &args.carrying.timeout)?;
    let reporter = Reporter::new(env, &args.carrying.showing.progress, quiet);
    block_on(interruptible("neonctl install", async {
        let job = Job::open(settings, &args.choices, &args.carrying, &reporter, limit).await?;
        job.not_older("neonctl upgrade --allow-downgrade")?;
        if args.dry_run.is_some() {
            return dry_server(&job).await;
        }
        let done = job.carry(false).await?;
        Ok(job.report(&done, &[]))
    }))
}

/// What is under way, ended by Ctrl-C with a word on how to go on.
pub(super) async fn interruptible<T>(command: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        ended = work => ended,
        _ = tokio::signal::ctrl_c() => {
            let hint = format!("applied objects are kept; to complete the installation: {command}");
            Err(Error::new(Code::Interrupted, "interrupted").hint(hint))
        }
    }
}

pub(super) struct Job<'a> {
    pub(super) connection: Connection,
    reporter: &'a Reporter,
    limit: Duration,
    is_waiting: bool,
    choice: Choice,
    pub(super) values: Values,
    facts: Facts,
    /// What the preflight judges.
    seen: checks::Facts,
    pub(super) record: Option<Record>,
}

pub(super) struct Done {
    changes: Vec<Change>,
    notes: Vec<String>,
    ready: Vec<ready::State>,
}

impl<'a> Job<'a> {
    pub(super) async fn open(
        settings: &Settings,
        choices: &Choices,
        carrying: &Carrying,
        reporter: &'a Reporter,
        limit: Duration,
    ) -> Result<Self> {
        let connection = Connection::open(settings).await?;
        let namespace = chosen::of_flags(choices, &Choice::default())?
            .values()
            .map_err(|error| chosen::unusable(&error))?
            .namespace;
        let mut seen = read::begin(&connection, &namespace).await?;
        read::more(&connection, &mut seen, &checks::needs(&[Group::Preflight])).await?;
        let facts = Facts { kubernetes: Some(seen.version.clone()), image_volumes: seen.image_volumes() };
        let record = apply::record(&connection, &namespace).await?;
        let before = match &record {
            Some(record) if !choices.reset_values => chosen::of_record(record)?,
            _ => Choice::default(),
        };
        let choice = chosen::of_flags(choices, &before)?;
        let values = choice.values().map_err(|error| chosen::unusable(&error))?;
        let is_waiting = !carrying.no_wait;
        Ok(Self { connection, reporter, limit, is_waiting, choice, values, facts, seen, record })
    }

    pub(super) fn not_older(&self, how: &str) -> Result<()> {
        let Some(record) = &self.record else { return Ok(()) };
        let (now, wanted) = (&record.version, &self.values.image.version);
        match (release(now), release(wanted)) {
            (Some(old), Some(new)) if new < old => {
                let message = format!("{wanted} is older than the installed version {now}");
                Err(Error::new(Code::Conflict, message).hint(format!("to install it anyway: {how}")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn objects(&self) -> Result<Vec<Value>> {
        neonvm_deploy::objects(&self.choice, &self.facts).map_err(|error| chosen::unusable(&error))
    }

    /// Preflight; its warnings.
    pub(super) async fn preflight(&self, objects: &[Value]) -> Result<Vec<String>> {
        self.reporter.begin("preflight", &self.connection.server);
        let kubernetes = self.facts.kubernetes.clone().unwrap_or_default();
        let missing = read::missing(&self.connection, objects).await?;
        let mut seen = self.seen.clone();
        seen.wanted = Wanted::new(&self.values, &self.facts, missing);
        let found = checks::findings(&seen, Group::Preflight);
        let of = |verdict: Verdict| found.iter().filter(move |found| found.verdict == verdict);
        let (failed, warned): (Vec<&Finding>, Vec<&Finding>) =
            (of(Verdict::Fail).collect(), of(Verdict::Warn).collect());
        if let [first, rest @ ..] = failed.as_slice() {
            let mut error = Error::new(Code::Conflict, first.detail.clone()).hint(first.remedy.clone());
            error.causes = rest.iter().map(|found| found.line()).collect();
            return Err(error);
        }
        let warnings = match warned.len() {
            0 => "no warnings".to_owned(),
            1 => "1 warning".to_owned(),
            more => format!("{more} warnings"),
        };
        self.reporter.end(&format!("Kubernetes {kubernetes}, {warnings}"));
        Ok(warned.iter().map(|found| found.line()).collect())
    }

    /// Applies everything; `is_staged`: the controller works before the others are changed.
    pub(super) async fn carry(&self, is_staged: bool) -> Result<Done> {
        let objects = self.objects()?;
        let notes = self.preflight(&objects).await?;
        ready::after_removal(&self.connection, self.reporter, &self.values.namespace, self.limit).await?;
        let (first, later): (Vec<Value>, Vec<Value>) = objects.iter().cloned().partition(|object| {
            let is_controller = text(object, "/metadata/name") == "neonvm-vm-controller";
            !is_staged || !neonvm_deploy::is_workload(object) || is_controller
        });
        let mut changes = self.apply(&first).await?;
        if !later.is_empty() {
            if self.is_waiting {
                self.start(&first).await?;
            }
            changes.extend(self.apply(&later).await?);
        }
        changes.extend(self.prune(&objects).await?);
        let mut ready = Vec::new();
        if self.is_waiting {
            ready = self.start(&objects).await?;
            self.reporter.begin("verify", "leases, webhooks");
            let verified = verify::all(&self.connection, &self.values, self.limit).await?;
            self.reporter.end(&verified);
        }
        Ok(Done { changes, notes, ready })
    }

    async fn apply(&self, objects: &[Value]) -> Result<Vec<Change>> {
        self.reporter.begin("apply", &format!("{} objects", objects.len()));
        let mut changes = Vec::new();
        for object in objects {
            let change = apply::apply(&self.connection, object).await?;
            self.reporter.line(&change.named.to_string());
            changes.push(change);
        }
        let changed = changes.iter().filter(|change| change.outcome != Outcome::Unchanged).count();
        self.reporter.end(&format!("{} objects, {changed} changed", objects.len()));
        Ok(changes)
    }

    async fn prune(&self, objects: &[Value]) -> Result<Vec<Change>> {
        let known: Vec<_> = objects.iter().map(neonvm_deploy::Named::from_object).collect();
        let before = self.record.as_ref().map(|record| record.objects.clone()).unwrap_or_default();
        let mut changes = Vec::new();
        for named in before.into_iter().filter(|old| !known.iter().any(|new| new.is(old))) {
            // Objects that people have are lost with their definition.
            if ["CustomResourceDefinition", "Namespace"].contains(&named.kind.as_str()) {
                continue;
            }
            if apply::delete(&self.connection, &named).await? {
                changes.push(Change { named, outcome: Outcome::Removed });
            }
        }
        let workloads: Vec<String> = changes
            .iter()
            .filter(|change| neonvm_deploy::is_workload(&json!({"kind": change.named.kind})))
            .map(|change| change.named.name.clone())
            .collect();
        for workload in workloads {
            changes.extend(self.end_leases(&workload).await?);
        }
        Ok(changes)
    }

    /// Removes the leases of a service that was removed: `status` would take it for one that has stopped.
    async fn end_leases(&self, workload: &str) -> Result<Vec<Change>> {
        let (connection, namespace) = (&self.connection, &self.values.namespace);
        if self.is_waiting {
            // A pod that still runs would write its lease again.
            let label = format!("app.kubernetes.io%2Fname%3D{workload}");
            removal::gone(connection, self.reporter, (namespace, &label), self.limit).await?;
        }
        let of_node = format!("{workload}-");
        let ours = |name: &str| {
            name == workload
                || name.starts_with(&of_node)
                || (workload == "neonvm-scheduler" && name == "neonvm-kube-scheduler")
        };
        let mut changes = Vec::new();
        for named in removal::leases(connection, namespace, ours).await? {
            apply::delete(connection, &named).await?;
            changes.push(Change { named, outcome: Outcome::Removed });
        }
        Ok(changes)
    }

    async fn start(&self, objects: &[Value]) -> Result<Vec<ready::State>> {
        self.reporter.begin("start", "services");
        let states = ready::wait(&self.connection, self.reporter, objects, self.limit).await?;
        let shown: Vec<String> = states.iter().map(ToString::to_string).collect();
        self.reporter.end(&shown.join(", "));
        Ok(states)
    }

    pub(super) fn report(&self, done: &Done, more: &[String]) -> Report {
        let (version, namespace) = (&self.values.image.version, &self.values.namespace);
        let changed = done.changes.iter().filter(|change| change.outcome != Outcome::Unchanged).count();
        let text = if changed == 0 {
            format!("nothing to do: neonvm {version} is installed in namespace {namespace}")
        } else {
            let verb = if self.record.is_some() { "is installed, with" } else { "is installed by" };
            format!("neonvm {version} {verb} {changed} changes, in namespace {namespace}\n{}", self.next())
        };
        let rows = done.changes.iter().map(Change::row).collect();
        let items: Vec<Value> = done.changes.iter().map(Change::json).collect();
        let services: Vec<Value> = done.ready.iter().map(ready::State::json).collect();
        let mut report = Report::document(Document {
            value: json!({"apiVersion": API_VERSION, "kind": "Installation", "version": version, "namespace": namespace,
                "kubernetes": self.facts.kubernetes, "changed": changed, "waited": self.is_waiting,
                "services": services, "items": items}),
            names: done.changes.iter().map(|change| change.named.to_string()).collect(),
            text: Some(text),
            columns: vec![left("OBJECT"), left("CHANGE")],
            rows,
        });
        report.notes.extend(done.notes.iter().chain(more).cloned());
        if !self.values.has(Component::Scheduler) && self.values.has(Component::Agent) {
            report.notes.push(
                "without the scheduler, each kubelet permits growth, and VMs are not migrated off a node that becomes full"
                    .to_owned(),
            );
        }
        report
    }

    fn next(&self) -> String {
        if !self.is_waiting {
            return "next: neonctl status".to_owned();
        }
        "next: neonctl vm create demo --image IMAGE --wait; neonctl status".to_owned()
    }
}

/// How long the cluster may take to report its version.
const PATIENCE: Duration = Duration::from_secs(3);

/// The objects, as `kubectl apply --server-side -f -` takes them. The cluster, if there is one, is asked for its version alone.
fn dry_client(settings: &Settings, choice: &Choice) -> Result<Report> {
    let kubernetes = block_on(async {
        let version = async {
            let connection = Connection::open(settings).await?;
            connection.json("/version").await
        };
        match tokio::time::timeout(PATIENCE, version).await {
            Ok(Ok(version)) => Ok(Some(text(&version, "/gitVersion").to_owned())),
            _ => Ok(None),
        }
    })?;
    let is_known = kubernetes.is_some();
    let facts = Facts { kubernetes, ..Facts::default() };
    let objects = neonvm_deploy::objects(choice, &facts).map_err(|error| chosen::unusable(&error))?;
    let mut report = match settings.output() {
        Some("yaml") => yaml(&objects)?,
        _ => Report::document(list(&objects)),
    };
    if !is_known {
        report = report
            .note("the cluster version is unknown: the default version of the kube-scheduler image is used");
    }
    Ok(report)
}

fn yaml(objects: &[Value]) -> Result<Report> {
    let mut text = String::new();
    for object in objects {
        let one = serde_saphyr::to_string(object)
            .map_err(|error| Error::new(Code::Failed, "cannot write YAML").cause(error.to_string()))?;
        text.push_str("---\n");
        text.push_str(one.trim_end());
        text.push('\n');
    }
    Ok(Report { body: Body::Text(text), notes: Vec::new(), code: 0, then: None })
}

fn list(objects: &[Value]) -> Document {
    let names: Vec<String> =
        objects.iter().map(|object| neonvm_deploy::Named::from_object(object).to_string()).collect();
    Document {
        value: list_of(objects),
        rows: names.iter().map(|name| vec![name.clone()]).collect(),
        names,
        text: None,
        columns: vec![left("OBJECT")],
    }
}

/// What the server would do with each object. Where the namespace does not exist yet, what is in it is judged in `default`.
async fn dry_server(job: &Job<'_>) -> Result<Report> {
    let objects = job.objects()?;
    let notes = job.preflight(&objects).await?;
    let namespace = &job.values.namespace;
    let exists = apply::get(&job.connection, &format!("/api/v1/namespaces/{namespace}")).await?.is_some();
    let mut changes: Vec<Change> = Vec::new();
    let mut skipped = 0;
    for object in &objects {
        let mut judged = object.clone();
        if !exists
            && text(object, "/metadata/namespace") == namespace
            && let Some(place) = judged.pointer_mut("/metadata/namespace")
        {
            *place = json!("default");
        }
        let group = text(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
        // Their definitions are not there before they are applied.
        if group == "k8s.cni.cncf.io" && apply::get(&job.connection, "/apis/k8s.cni.cncf.io").await?.is_none()
        {
            skipped += 1;
            continue;
        }
        let change = apply::judge(&job.connection, &judged).await?;
        changes.push(Change { named: neonvm_deploy::Named::from_object(object), ..change });
    }
    let items: Vec<Value> = changes.iter().map(Change::json).collect();
    let mut report = Report::document(Document {
        value: json!({"apiVersion": API_VERSION, "kind": "InstallationPlan", "namespace": namespace, "items": items}),
        names: changes.iter().map(|change| change.named.to_string()).collect(),
        text: None,
        columns: vec![left("OBJECT"), left("CHANGE")],
        rows: changes.iter().map(Change::row).collect(),
    });
    report.notes.extend(notes);
    if !exists {
        report = report.note(format!(
            "namespace {namespace} does not exist yet: its objects were validated in namespace default"
        ));
    }
    if skipped > 0 {
        report = report.note(format!(
            "{skipped} objects were not validated: their kinds are not installed in the cluster"
        ));
    }
    Ok(report.note("nothing was applied"))
}
