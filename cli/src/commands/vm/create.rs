//! `vm create`

mod image;
pub(super) mod manifest;

use crate::commands::resource;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use neonvm_api::VirtualMachine;
use neonvm_api::names::QUOTA_EXCEEDED;
use serde_json::Value;

use super::table::failing;
use super::waiting::{state, until};
use crate::args::vm::Create;
use crate::commands::flags::duration;
use crate::commands::resource::client::NamespaceClient;
use crate::commands::resource::{nearest, wait};
use crate::commands::watching::WaitProgress;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;
use crate::report::{Document, Report};
use crate::settings::Settings;

/// Makes a VM from flags or a manifest.
pub(in crate::commands) fn run(settings: &Settings, args: &Create, quiet: bool) -> Result<Report> {
    let mut object = match &args.file {
        Some(_) => known(read(args)?)?,
        None => manifest::of_flags(args)?,
    };
    image::check(args, &object)?;
    let verdict = neonvm_api::admit("VirtualMachine", &mut object, None);
    if let [first, rest @ ..] = verdict.errors.as_slice() {
        let mut error = Error::new(Code::Usage, format!("{}: {}", first.path, first.message));
        error.causes = rest.iter().map(|fault| format!("{}: {}", fault.path, fault.message)).collect();
        return Err(error);
    }
    let warnings: Vec<String> = verdict
        .warnings
        .iter()
        .map(|warning| format!("warning: {}: {}", warning.path, warning.message))
        .collect();
    if args.dry_run.as_deref() == Some("client") {
        let machine: VirtualMachine = serde_json::from_value(object.clone()).map_err(|error| {
            Error::new(Code::Usage, "this is not a VirtualMachine object").cause(error.to_string())
        })?;
        let meant = image::meant(settings, &object);
        let document = Document { value: object, ..resource::table(&[machine], false) };
        let mut report = Report::document(document).note("nothing was created");
        report.notes.extend(warnings);
        report.notes.extend(meant);
        return Ok(report);
    }
    let mut report = block_on(send(settings, args, object, quiet))?;
    report.notes.extend(warnings);
    Ok(report)
}

/// The object, unless it has fields that a server would drop.
fn known(object: Value) -> Result<Value> {
    let mut unknown = neonvm_api::crd::unknown_fields("VirtualMachine", &object).into_iter();
    let Some(first) = unknown.next() else { return Ok(object) };
    let mut error = Error::new(Code::Usage, format!("unknown field {:?}", first.path));
    error.causes = unknown.map(|other| format!("unknown field {:?}", other.path)).collect();
    let name = first.path.rsplit('.').next().unwrap_or_default();
    Err(match nearest(name, &first.known) {
        Some(meant) => error.hint(format!("did you mean {meant:?}?")),
        None => error.hint(format!("there are: {}", first.known.join(", "))),
    })
}

async fn send(settings: &Settings, args: &Create, object: Value, quiet: bool) -> Result<Report> {
    let mut client = NamespaceClient::open(settings, &args.place).await?;
    let meant = image::of_local_cluster(settings, &client.connection, &object);
    if let (None, Some(namespace)) =
        (&args.place.namespace, object.pointer("/metadata/namespace").and_then(Value::as_str))
    {
        client.namespace = namespace.to_owned();
    }
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind = GroupVersionKind::gvk("vm.neon.tech", "v1", "VirtualMachine");
    let resource = ApiResource::from_gvk_with_plural(&kind, "virtualmachines");
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.connection.client(), &client.namespace, &resource);
    let dynamic: DynamicObject = serde_json::from_value(object).map_err(|error| {
        Error::new(Code::Usage, "this is not a VirtualMachine object").cause(error.to_string())
    })?;
    let parameters = PostParams { dry_run: args.dry_run.is_some(), field_manager: Some("neonctl".into()) };
    let attempt = format!("cannot create VM {name:?}");
    let made = client.connection.within(&attempt, api.create(&parameters, &dynamic)).await;
    let made = made.map_err(|error| explain(error, &name, &client.namespace))?;
    let strange = |error: serde_json::Error| {
        Error::new(Code::Failed, "the server sent an invalid response").cause(error.to_string())
    };
    let value = serde_json::to_value(&made).map_err(strange)?;
    let mut machine: VirtualMachine = serde_json::from_value(value.clone()).map_err(strange)?;
    let mut document = Document { value, ..resource::table(std::slice::from_ref(&machine), false) };
    if args.dry_run.is_some() {
        return Ok(Report::document(document).note("nothing was created"));
    }
    let mut text = format!("virtualmachine/{name} created (Pending)");
    if args.waiting.wait {
        Reporter::lines(quiet).show(&format!("virtualmachine/{name} created, waiting until it runs"));
        let limit = duration("timeout", &args.waiting.timeout)?;
        let mut stages = Stages::new(quiet);
        let look = |seen: Option<&VirtualMachine>| {
            stages.show(seen);
            up(&name, seen)
        };
        let waited = until(&client, &name, limit, "condition=Available", look).await;
        let waited = waited.map_err(|error| image::with_hint(error, meant.as_deref()))?;
        text = format!("virtualmachine/{name} created, Running after {}", wait::seconds(waited.took));
        if let Some(seen) = waited.object {
            machine = seen;
            document = resource::document(&[machine]);
        }
    }
    let report = Report::document(Document { text: Some(text), ..document });
    Ok(meant.into_iter().fold(report, Report::note))
}

/// Shows a person at a terminal how far a VM is.
struct Stages {
    reporter: Option<Reporter>,
    last: String,
}

impl Stages {
    fn new(quiet: bool) -> Self {
        let (_, terminal) = crate::render::terminals();
        Self { reporter: terminal.then(|| Reporter::lines(quiet)), last: String::new() }
    }

    /// Prints the message of the condition `Available` if it has changed.
    fn show(&mut self, seen: Option<&VirtualMachine>) {
        let (Some(reporter), Some(status)) = (&self.reporter, seen.and_then(|seen| seen.status.as_ref()))
        else {
            return;
        };
        let available = status.conditions.iter().find(|one| one.type_ == "Available" && one.status != "True");
        if let Some(now) = available.filter(|now| !now.message.is_empty() && now.message != self.last) {
            self.last.clone_from(&now.message);
            reporter.show(&format!("  {}", self.last));
        }
    }
}

/// Whether it is up; or has ended, which is as far as it will come.
pub(super) fn up(name: &str, machine: Option<&VirtualMachine>) -> WaitProgress {
    use neonvm_api::virtual_machine::Phase;
    let Some(machine) = machine else {
        return WaitProgress::Never(Error::new(Code::Failed, format!("{name} was deleted while it started")));
    };
    let status = machine.status.as_ref();
    match status.and_then(|status| status.phase) {
        Some(Phase::Running | Phase::Scaling) => match failing(machine) {
            Some(_) => WaitProgress::Never(
                Error::new(Code::Failed, format!("{name} runs, but its workload does not"))
                    .cause(state(machine))
                    .hint(format!("see what it wrote: neonctl vm logs {name}")),
            ),
            None => WaitProgress::Done,
        },
        Some(Phase::Succeeded) => WaitProgress::Done,
        Some(Phase::Failed)
            if machine.spec.restart_policy == neonvm_api::virtual_machine::RestartPolicy::Never =>
        {
            WaitProgress::Never(
                Error::new(Code::Failed, format!("{name} failed to start"))
                    .cause(state(machine))
                    .hint(format!("see its last lines: neonctl vm logs {name} --previous")),
            )
        }
        _ if image::unpullable(machine).is_some() => {
            let why = image::unpullable(machine).unwrap_or_default();
            WaitProgress::Never(image::failure(name, machine, &why))
        }
        _ => match quota(machine) {
            Some(why) => WaitProgress::Never(
                Error::new(
                    Code::Conflict,
                    format!("{name} does not start: a quota of its namespace is exhausted"),
                )
                .cause(why)
                .hint(format!(
                    "it starts when the quota allows it: kubectl describe resourcequota -n {}; or delete it: \
                         neonctl vm delete {name}",
                    machine.metadata.namespace.as_deref().unwrap_or_default()
                )),
            ),
            None => WaitProgress::NotYet,
        },
    }
}

/// The API server's message about a quota that the VM's pod would exceed.
fn quota(machine: &VirtualMachine) -> Option<String> {
    let mut conditions = machine.status.as_ref()?.conditions.iter();
    let is_it = |reason: &str, status: &str| reason == QUOTA_EXCEEDED && status == "True";
    let found = conditions.find(|one| one.type_ == "Degraded" && is_it(&one.reason, &one.status))?;
    Some(found.message.clone())
}

fn explain(error: Error, name: &str, namespace: &str) -> Error {
    match error.code {
        Code::Conflict => {
            Error::new(Code::Conflict, format!("VM {name:?} already exists in namespace {namespace:?}"))
                .hint(format!("change its size with: neonctl vm scale {name} --cpu N --memory SIZE"))
        }
        Code::NotFound if error.causes.iter().any(|cause| cause.contains("namespaces")) => {
            error.hint(format!("create the namespace: kubectl create namespace {namespace}"))
        }
        Code::NotFound => error.hint("the definition of VirtualMachine is not installed: neonctl status"),
        _ => error,
    }
}

/// Reads a manifest. Exactly one machine must be in it; a name among the arguments wins over its own.
fn read(args: &Create) -> Result<Value> {
    let (text, source) = crate::commands::input::read(args.file.as_deref().unwrap_or("-"))?;
    let mut object: Value = serde_saphyr::from_str(&text).map_err(|error| {
        Error::new(Code::Usage, format!("{source} is not YAML of one object")).cause(error.to_string())
    })?;
    let word = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, version) = (word("kind"), word("apiVersion"));
    if kind != "VirtualMachine" || version != "vm.neon.tech/v1" {
        return Err(Error::new(
            Code::Usage,
            format!("{source} contains {kind:?} of {version:?}, not a VirtualMachine"),
        )
        .hint("kind: VirtualMachine, apiVersion: vm.neon.tech/v1; for other objects use kubectl apply -f"));
    }
    if let (Some(name), Some(metadata)) =
        (&args.name, object.get_mut("metadata").and_then(Value::as_object_mut))
    {
        metadata.insert("name".into(), Value::from(name.clone()));
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_would_be_dropped_is_refused() {
        let object = |guest: Value| serde_json::json!({"kind": "VirtualMachine", "spec": {"guest": guest}});
        let good = object(serde_json::json!({"cpus": {"min": 1}}));
        assert_eq!(known(good.clone()).unwrap(), good);
        let error = known(object(serde_json::json!({"cpu": {"min": 1}, "zone": 1}))).unwrap_err();
        assert_eq!(error.message, "unknown field \"spec.guest.cpu\"");
        assert_eq!(error.hint.as_deref(), Some("did you mean \"cpus\"?"));
        assert_eq!(error.causes, ["unknown field \"spec.guest.zone\""]);
    }
}
