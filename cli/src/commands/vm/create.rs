//! `vm create`

mod file;
mod image;
pub(super) mod manifest;
mod snapshot;

use crate::commands::resource;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use neonvm_api::virtual_machine::{Phase, PowerState, RestartPolicy};
use neonvm_api::{FieldError, VirtualMachine};
use serde_json::Value;

use super::table::failing;
use super::waiting::until;
use crate::args::vm::Create;
use crate::commands::finals::{self, Awaited};
use crate::commands::flags::duration;
use crate::commands::resource::{NamespaceClient, wait};
use crate::commands::watching::WaitProgress;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;
use crate::report::{Document, Report, list_of};
use crate::settings::Settings;

pub(crate) fn run(settings: &Settings, args: &Create, quiet: bool) -> Result<Report> {
    let (objects, mut notes) = match &args.file {
        Some(file) => file::read(file, args.name.as_deref())?,
        None => {
            let mut object = manifest::of_flags(args)?;
            snapshot::add(settings, args, &mut object)?;
            (vec![object], Vec::new())
        }
    };
    let single = objects.len() == 1;
    let mut checked = Vec::new();
    for mut object in objects {
        let found =
            check(args, &mut object).map_err(|error| if single { error } else { named(error, &object) })?;
        notes.extend(found.into_iter().map(|fault| format!("warning: {}: {}", fault.path, fault.message)));
        checked.push(object);
    }
    let mut report = if args.dry_run.as_deref() == Some("client") {
        let report = shown(settings, checked)?;
        report.note("nothing was created")
    } else {
        block_on(send_all(settings, args, checked, quiet))?
    };
    report.notes.extend(notes);
    Ok(report)
}

/// Checks an object as admission does, and gives it its defaults; returns warnings.
fn check(args: &Create, object: &mut Value) -> Result<Vec<FieldError>> {
    image::check(args, object)?;
    let verdict = neonvm_api::admit("VirtualMachine", object, None);
    let [first, rest @ ..] = verdict.errors.as_slice() else { return Ok(verdict.warnings) };
    let mut error = Error::new(Code::Usage, format!("{}: {}", first.path, first.message));
    error.causes = rest.iter().map(|fault| format!("{}: {}", fault.path, fault.message)).collect();
    Err(error)
}

fn named(error: Error, object: &Value) -> Error {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    Error { message: format!("VM {name:?}: {}", error.message), ..error }
}

fn machine_of(object: &Value) -> Result<VirtualMachine> {
    serde_json::from_value(object.clone()).map_err(|error| {
        Error::new(Code::Usage, "this is not a VirtualMachine object").cause(error.to_string())
    })
}

fn shown(settings: &Settings, objects: Vec<Value>) -> Result<Report> {
    let machines = objects.iter().map(machine_of).collect::<Result<Vec<_>>>()?;
    let meant: Vec<String> = objects.iter().filter_map(|object| image::meant(settings, object)).collect();
    let mut report =
        Report::document(Document { value: as_sent(objects), ..resource::table(&machines, false) });
    report.notes.extend(meant);
    Ok(report)
}

/// One object by itself, or a list.
fn as_sent(mut objects: Vec<Value>) -> Value {
    if objects.len() == 1 { objects.remove(0) } else { list_of(&objects) }
}

async fn send_all(settings: &Settings, args: &Create, objects: Vec<Value>, quiet: bool) -> Result<Report> {
    let mut client = NamespaceClient::open(settings).await?;
    let default = client.namespace.clone();
    let (mut values, mut machines, mut texts, mut hints) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for object in objects {
        client.namespace = match object.pointer("/metadata/namespace").and_then(Value::as_str) {
            Some(namespace) if settings.place().namespace.is_none() => namespace.to_owned(),
            _ => default.clone(),
        };
        let meant = image::of_local_cluster(settings, &client.connection, &object);
        let made = send(&client, args, object, meant.as_deref(), quiet).await;
        let (value, machine, text) = made.map_err(|error| match texts.as_slice() {
            [] => error,
            before => error.cause(format!("before it: {}", before.join("; "))),
        })?;
        values.push(value);
        machines.push(machine);
        texts.push(text);
        hints.extend(meant);
    }
    let mut report = if args.dry_run.is_some() {
        let document = Document { value: as_sent(values), ..resource::table(&machines, false) };
        Report::document(document).note("nothing was created")
    } else {
        let text = Some(texts.join("\n"));
        Report::document(Document { text, value: as_sent(values), ..resource::table(&machines, false) })
    };
    report.notes.extend(hints);
    Ok(report)
}

/// Makes a VM; returns the object as it is now, and what was done.
async fn send(
    client: &NamespaceClient,
    args: &Create,
    object: Value,
    meant: Option<&str>,
    quiet: bool,
) -> Result<(Value, VirtualMachine, String)> {
    let given = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind = GroupVersionKind::gvk("vm.neon.tech", "v1", "VirtualMachine");
    let resource = ApiResource::from_gvk_with_plural(&kind, "virtualmachines");
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.connection.client(), &client.namespace, &resource);
    let dynamic: DynamicObject = serde_json::from_value(object).map_err(|error| {
        Error::new(Code::Usage, "this is not a VirtualMachine object").cause(error.to_string())
    })?;
    let parameters = PostParams { dry_run: args.dry_run.is_some(), field_manager: Some("neonctl".into()) };
    let attempt = format!("cannot create VM {given:?}");
    let made = client.connection.within(&attempt, api.create(&parameters, &dynamic)).await;
    let made = made.map_err(|error| explain(error, &given, &client.namespace))?;
    let name = made.metadata.name.clone().unwrap_or(given);
    let strange = |error: serde_json::Error| {
        Error::new(Code::Failed, "the server sent an invalid response").cause(error.to_string())
    };
    let value = serde_json::to_value(&made).map_err(strange)?;
    let machine: VirtualMachine = serde_json::from_value(value.clone()).map_err(strange)?;
    if args.dry_run.is_some() || !args.waiting.wait {
        return Ok((value, machine, format!("virtualmachine/{name} created (Pending)")));
    }
    Reporter::lines(quiet).show(&format!("virtualmachine/{name} created, waiting until it runs"));
    let limit = duration("timeout", &args.waiting.timeout)?;
    let mut stages = Stages::new(quiet);
    let look = |seen: Option<&VirtualMachine>| {
        stages.show(seen);
        up(&name, seen)
    };
    let waited = until(client, &name, limit, "condition=Available", look).await;
    let waited = waited.map_err(|error| image::with_hint(error, meant))?;
    let machine = waited.object.unwrap_or(machine);
    let text = reached(&name, &machine, waited.took);
    Ok((serde_json::to_value(&machine).map_err(strange)?, machine, text))
}

/// What waiting has led to. A workload that was started once may have ended.
fn reached(name: &str, machine: &VirtualMachine, took: std::time::Duration) -> String {
    let took = wait::seconds(took);
    match machine.status.as_ref().and_then(|status| status.phase) {
        Some(Phase::Succeeded) => format!("virtualmachine/{name} created, ended well after {took}"),
        _ if is_off(machine) => format!("virtualmachine/{name} created (Stopped)"),
        _ => format!("virtualmachine/{name} created, Running after {took}"),
    }
}

/// Whether it is off because its object wants it off.
fn is_off(machine: &VirtualMachine) -> bool {
    machine.spec.is_stopped()
        && machine.status.as_ref().is_some_and(|status| {
            status.power_state == Some(PowerState::Stopped) && status.pod_name.is_empty()
        })
}

/// Shows a person at a terminal how far a VM is.
struct Stages {
    reporter: Option<Reporter>,
    last: String,
}

impl Stages {
    fn new(quiet: bool) -> Self {
        let (_, terminal) = crate::env::terminals();
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
    let Some(machine) = machine else {
        return WaitProgress::Never(Error::new(Code::Failed, format!("{name} was deleted while it started")));
    };
    match machine.status.as_ref().and_then(|status| status.phase) {
        Some(Phase::Running | Phase::Scaling) if failing(machine).is_none() => WaitProgress::Done,
        // Otherwise it is started again.
        Some(Phase::Succeeded) if machine.spec.restart_policy != RestartPolicy::Always => WaitProgress::Done,
        _ if is_off(machine) => WaitProgress::Done,
        _ => finals::of_vm(Awaited::Up, machine),
    }
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
