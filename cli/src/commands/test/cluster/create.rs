//! Makes the namespace and the VM, and waits until the VM runs.

use http::Method;
use neonvm_api::VirtualMachine;
use neonvm_api::names::agent_lease;
use neonvm_api::virtual_machine::Phase;
use serde_json::{Value, json};

use super::step::Outcome;
use super::trial::{Trial, VM, node_of};
use crate::commands::checks::read::installed;
use crate::commands::finals::{self, Awaited};
use crate::commands::install::apply::get;
use crate::commands::object::{is_true, items, text};
use crate::commands::watching::WaitProgress;
use crate::error::{Code, Error, Result};

/// The VM: a quarter of a CPU to a whole one, 1Gi to 2Gi, small enough for any node.
fn vm(image: &str, pull_secret: Option<&str>) -> Value {
    let mut vm = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": VM}, "spec": {
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 5, "guest": {
            "cpus": {"min": "250m", "max": 1, "use": "250m"},
            "memorySlotSize": "1Gi", "memorySlots": {"min": 1, "max": 2, "use": 1},
            "rootDisk": {"image": image}}}});
    if let (Some(name), Some(spec)) = (pull_secret, vm.get_mut("spec").and_then(Value::as_object_mut)) {
        spec.insert("imagePullSecrets".to_owned(), json!([{ "name": name }]));
    }
    vm
}

/// Runner pods need no more than what Pod Security calls restricted.
fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {
        "app.kubernetes.io/managed-by": "neonctl", "pod-security.kubernetes.io/enforce": "restricted"}}})
}

pub(super) async fn run(trial: &mut Trial<'_>) -> Result<Outcome> {
    space(trial).await?;
    let secret = pull_secret(trial).await?;
    trial.nodes = runnable(trial).await?;
    let path = format!(
        "/apis/vm.neon.tech/v1/namespaces/{}/virtualmachines?fieldManager=neonctl",
        trial.namespace()
    );
    let vm = vm(&trial.image, secret.as_deref());
    // Before it is made, as the namespace.
    trial.made_vm = true;
    if let Err(error) = trial.connection().request(Method::POST, &path, Some(&vm)).await {
        trial.made_vm = error.code == Code::Unreachable;
        return Err(refused(error, trial.namespace()));
    }
    let running = trial.until("the VM runs", is_up).await.map_err(|error| of_image(error, trial))?;
    trial.has_vm = true;
    Ok(Outcome::Passed(format!("runs on {}", node_of(&running))))
}

/// Makes the namespace, unless it was named and exists.
async fn space(trial: &mut Trial<'_>) -> Result<()> {
    let name = trial.namespace().to_owned();
    if trial.is_named {
        match get(trial.connection(), &format!("/api/v1/namespaces/{name}")).await {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(()),
            // With rights in one namespace alone it cannot be read.
            Err(error) if error.code == Code::Denied => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    // Before it is made: a request that was sent may be carried out after an interruption.
    trial.owns_namespace = true;
    let made = trial.connection().request(Method::POST, "/api/v1/namespaces", Some(&namespace(&name))).await;
    made.map(drop).map_err(|error| {
        trial.owns_namespace = error.code == Code::Unreachable;
        let denied = error.code == Code::Denied;
        let error = Error { message: format!("cannot create namespace {name}"), ..error };
        if denied {
            error.hint("choose a namespace in which you may create VMs: --namespace NAME")
        } else {
            error
        }
    })
}

/// Name of the secret with the password of the registry. One of another namespace is copied, if this namespace is removed at the
/// end: a password must not stay behind.
async fn pull_secret(trial: &Trial<'_>) -> Result<Option<String>> {
    let Some(named) = &trial.pull_secret else { return Ok(None) };
    let (namespace, name) = named.split_once('/').unwrap_or((trial.namespace(), named));
    let usage = |message: String| Error::new(Code::Usage, format!("--pull-secret: {message}"));
    if namespace.is_empty() || name.is_empty() || name.contains('/') {
        return Err(usage(format!("{named:?} is not valid: use NAME or NAMESPACE/NAME")));
    }
    if namespace == trial.namespace() {
        return match trial.owns_namespace {
            false => Ok(Some(name.to_owned())),
            true => Err(usage(format!(
                "the namespace of the test is new: use NAMESPACE/{name}, and the secret is copied"
            ))),
        };
    }
    if !trial.owns_namespace {
        let own = trial.namespace();
        return Err(usage(format!(
            "{named} is in another namespace than the test: use a secret in {own}, or omit --namespace"
        )));
    }
    let found = get(trial.connection(), &format!("/api/v1/namespaces/{namespace}/secrets/{name}")).await?;
    let found = found.ok_or_else(|| usage(format!("there is no secret {name} in namespace {namespace}")))?;
    let copy = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
        "type": found.get("type"), "data": found.get("data")});
    let path = format!("/api/v1/namespaces/{}/secrets", trial.namespace());
    trial.connection().request(Method::POST, &path, Some(&copy)).await?;
    Ok(Some(name.to_owned()))
}

/// Nodes that run VMs; none where they may not be listed.
async fn runnable(trial: &Trial<'_>) -> Result<Option<Vec<String>>> {
    let connection = trial.connection();
    let nodes = match items(connection, "/api/v1/nodes").await {
        Err(error) if error.code == Code::Denied => return Ok(None),
        nodes => nodes?,
    };
    let system = installed(connection, None).await?;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{system}/leases");
    // Without them every node counts that takes pods.
    let leases = items(connection, &path).await.unwrap_or_default();
    Ok(Some(that_run_vms(&nodes, &leases)))
}

fn refused(error: Error, namespace: &str) -> Error {
    let code = error.code;
    let error = Error { message: format!("cannot create VM {VM} in namespace {namespace}"), ..error };
    match code {
        Code::NotFound => error.hint("the definition of VirtualMachine is not installed: neonctl install"),
        Code::Conflict => error.hint(format!(
            "delete the VM of an earlier test: neonctl vm delete {VM} -n {namespace}; or use another namespace"
        )),
        _ => error,
    }
}

fn is_up(vm: &VirtualMachine) -> WaitProgress {
    let Some(status) = &vm.status else { return WaitProgress::NotYet };
    let is_available = status
        .conditions
        .iter()
        .any(|condition| condition.type_ == "Available" && condition.status == "True");
    match status.phase {
        Some(Phase::Running | Phase::Scaling) if is_available => WaitProgress::Done,
        Some(Phase::Succeeded) => WaitProgress::Never(
            Error::new(Code::Failed, "the VM ended immediately")
                .hint("use an image whose workload keeps running, or omit --image"),
        ),
        _ => finals::of_vm(Awaited::Up, vm),
    }
}

/// An image that this program chose may not be there.
fn of_image(error: Error, trial: &Trial<'_>) -> Error {
    let is_it = |cause: &String| finals::UNPULLABLE.iter().any(|word| cause.contains(word));
    match error.causes.iter().any(is_it) {
        true if trial.is_default_image => error.hint(super::image::how_to_push(&trial.image)),
        true => error.hint("check that nodes can pull the image, or use another one with --image"),
        false => error,
    }
}

/// Taints that keep pods away which do not tolerate them.
const REPELLING: [&str; 2] = ["NoSchedule", "NoExecute"];

fn is_open(node: &Value) -> bool {
    let is_cordoned = node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true);
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    let repels = taints.into_iter().flatten().any(|taint| REPELLING.contains(&text(taint, "/effect")));
    is_true(node, "Ready") && !is_cordoned && !repels
}

/// Names of nodes that are ready, open to new pods and, where agents hold leases, have an agent.
fn that_run_vms(nodes: &[Value], leases: &[Value]) -> Vec<String> {
    let has_lease = |name: &str| leases.iter().any(|lease| text(lease, "/metadata/name") == name);
    let has_agents = leases.iter().any(|lease| text(lease, "/metadata/name").starts_with(&agent_lease("")));
    let open = nodes.iter().filter(|node| is_open(node)).map(|node| text(node, "/metadata/name").to_owned());
    open.filter(|name| !has_agents || has_lease(&agent_lease(name))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_made_is_valid() {
        for secret in [None, Some("login")] {
            let verdict = neonvm_api::admit("VirtualMachine", &mut vm("a:1", secret), None);
            assert!(verdict.errors.is_empty() && verdict.warnings.is_empty(), "{verdict:?}");
        }
        assert_eq!(vm("a:1", Some("login"))["spec"]["imagePullSecrets"], json!([{"name": "login"}]));
    }

    #[test]
    fn up_is_what_runs_and_is_available() {
        let vm = |phase: &str, available: &str| {
            let mut object = vm("a:1", None);
            object["status"] = json!({"phase": phase, "conditions": [{"type": "Available", "status": available,
                "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
            serde_json::from_value::<VirtualMachine>(object).unwrap()
        };
        assert!(matches!(is_up(&vm("Running", "True")), WaitProgress::Done));
        assert!(matches!(is_up(&vm("Running", "False")), WaitProgress::NotYet));
        assert!(matches!(is_up(&vm("Pending", "False")), WaitProgress::NotYet));
        assert!(matches!(is_up(&vm("Succeeded", "False")), WaitProgress::Never(_)));
    }

    #[test]
    fn a_node_must_be_ready_and_open_and_have_an_agent() {
        let node = |name: &str, ready: &str, spec: Value| {
            json!({"metadata": {"name": name}, "spec": spec,
                "status": {"conditions": [{"type": "Ready", "status": ready}]}})
        };
        let nodes = [
            node("n1", "True", json!({})),
            node("n2", "True", json!({"taints": [{"key": "a", "effect": "PreferNoSchedule"}]})),
            node("master", "True", json!({"taints": [{"key": "a", "effect": "NoSchedule"}]})),
            node("closed", "True", json!({"unschedulable": true})),
            node("lost", "Unknown", json!({})),
        ];
        assert_eq!(that_run_vms(&nodes, &[]), ["n1", "n2"]);
        let leases =
            [json!({"metadata": {"name": "neonvm-agent-n2"}}), json!({"metadata": {"name": "other"}})];
        assert_eq!(that_run_vms(&nodes, &leases), ["n2"]);
    }
}
