//! Runners of other versions, and replacing them by live migration.

use std::time::Duration;

use http::Method;
use neonvm_api::names::{RUNNER_CONTAINER, label};
use neonvm_kernel::Progress as _;
use serde_json::{Value, json};

use crate::commands::install::apply::get;
use crate::commands::object::{items_if_any, text};
use crate::commands::poll;
use crate::connect::Connection;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;

/// Names that are tried for one.
const NAMES: u32 = 100;

/// A VM whose runner is of another image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Old {
    pub(super) namespace: String,
    pub(super) vm: String,
    image: String,
}

/// VMs whose runner is not of this image. Those that name an image of their own have what they want.
pub(super) async fn old(connection: &Connection, image: &str) -> Result<Vec<Old>> {
    let selector = format!("{}%3D{}", label::APP_NAME.replace('/', "%2F"), label::APP_NAME_VALUE);
    let pods = items_if_any(connection, &format!("/api/v1/pods?labelSelector={selector}")).await?;
    let vms = items_if_any(connection, "/apis/vm.neon.tech/v1/virtualmachines").await?;
    Ok(found(&pods, &vms, image))
}

fn found(pods: &[Value], vms: &[Value], image: &str) -> Vec<Old> {
    let mut all = Vec::new();
    for vm in vms.iter().filter(|vm| text(vm, "/spec/runnerImage").is_empty()) {
        let (namespace, name) = (text(vm, "/metadata/namespace"), text(vm, "/metadata/name"));
        let own = |pod: &&Value| {
            text(pod, "/metadata/namespace") == namespace
                && text(pod, "/metadata/name") == text(vm, "/status/podName")
        };
        let Some(pod) = pods.iter().find(own) else { continue };
        let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
        let runner = containers.into_iter().flatten().find(|one| text(one, "/name") == RUNNER_CONTAINER);
        let has = runner.map(|runner| text(runner, "/image")).unwrap_or_default();
        if has != image {
            all.push(Old { namespace: namespace.to_owned(), vm: name.to_owned(), image: has.to_owned() });
        }
    }
    all
}

/// Migrates one VM after the other; stops at the first that fails.
pub(super) async fn migrate(
    connection: &Connection,
    reporter: &Reporter,
    all: &[Old],
    limit: Duration,
) -> Result<usize> {
    for (index, old) in all.iter().enumerate() {
        let Old { namespace, vm, image } = old;
        reporter.begin("migrate", &format!("{namespace}/{vm} ({} of {}) from {image}", index + 1, all.len()));
        one(connection, reporter, old, limit).await.map_err(|error| {
            let left = all.len() - index;
            Error {
                message: format!("{index} runners were replaced, {left} remain: {}", error.message),
                ..error
            }
            .hint(format!(
                "see neonctl vm describe {vm} -n {namespace}; then continue: neonctl upgrade --runners migrate"
            ))
        })?;
        reporter.end(&format!("{namespace}/{vm}"));
    }
    Ok(all.len())
}

async fn one(connection: &Connection, reporter: &Reporter, old: &Old, limit: Duration) -> Result<()> {
    let Old { namespace, vm, .. } = old;
    let place = format!("/apis/vm.neon.tech/v1/namespaces/{namespace}/virtualmachinemigrations");
    let path = format!("{place}/{}", create(connection, &place, vm).await?);
    let mut last = String::new();
    let migrated = poll::until(limit, async || {
        let migration = get(connection, &path).await?.ok_or_else(|| {
            Error::new(Code::Failed, format!("the migration of {namespace}/{vm} was deleted"))
        })?;
        let message = text(&migration, "/status/message");
        match text(&migration, "/status/phase") {
            "Succeeded" => return Ok(Some(())),
            "Failed" => {
                return Err(
                    Error::new(Code::Failed, format!("{namespace}/{vm} was not migrated")).cause(message)
                );
            }
            phase => reporter.line(&format!("{namespace}/{vm} {phase} {message}")),
        }
        message.clone_into(&mut last);
        Ok(None)
    });
    migrated.await?.ok_or_else(|| {
        Error::new(Code::Timeout, format!("{namespace}/{vm} is not migrated after {limit:?}")).cause(last)
    })
}

/// Makes the object, with the first free name.
async fn create(connection: &Connection, place: &str, vm: &str) -> Result<String> {
    for number in 1..=NAMES {
        let name = format!("{vm}-upgrade-{number}");
        let object = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachineMigration",
            "metadata": {"name": name}, "spec": {"vmName": vm}});
        match connection.request(Method::POST, &format!("{place}?fieldManager=neonctl"), Some(&object)).await
        {
            Ok(_) => return Ok(name),
            Err(error) if error.code == Code::Conflict => {}
            Err(error) => return Err(Error { message: format!("cannot migrate {vm}"), ..error }),
        }
    }
    Err(Error::new(Code::Conflict, format!("{vm} has {NAMES} migrations from upgrades"))
        .cause("delete finished ones; list them: neonctl migration list"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runners_of_another_image_are_found() {
        let pod = |name: &str, image: &str| {
            json!({"metadata": {"namespace": "a", "name": name}, "spec": {"containers": [
                {"name": "sidecar", "image": "s"}, {"name": RUNNER_CONTAINER, "image": image}]}})
        };
        let vm = |name: &str, image: &str| {
            json!({"metadata": {"namespace": "a", "name": name}, "spec": {"runnerImage": image},
                "status": {"podName": format!("{name}-0")}})
        };
        let pods = [pod("old-0", "r:1"), pod("new-0", "r:2"), pod("own-0", "mine:7")];
        let vms = [vm("old", ""), vm("new", ""), vm("own", "mine:7"), vm("waits", "")];
        let names: Vec<String> = found(&pods, &vms, "r:2").into_iter().map(|old| old.vm).collect();
        assert_eq!(names, ["old"]);
    }
}
