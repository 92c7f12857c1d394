//! Which VMs use which image.

use std::time::Duration;

use kube::api::{Api, ListParams};
use neonvm_api::VirtualMachine;
use neonvm_builder::reference::{Digest, Reference};
use neonvm_builder::store::Entry;

use crate::args::local::Which;
use crate::connect::{Connection, block_on};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::instance::{self, State};
use crate::settings::Settings;

/// Longest time for the cluster's response: the images are on this host.
const PATIENCE: Duration = Duration::from_secs(2);
/// VMs that a cell names.
const NAMED: usize = 3;

/// The VMs of a cluster, as `namespace/name`, with the images of their root disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage(Vec<(String, Reference)>);

impl Usage {
    pub(super) fn new(machines: &[VirtualMachine]) -> Self {
        let of = |machine: &VirtualMachine| {
            let metadata = &machine.metadata;
            let namespace = metadata.namespace.as_deref().unwrap_or_default();
            let name = format!("{namespace}/{}", metadata.name.as_deref().unwrap_or_default());
            Some((name, machine.spec.guest.root_disk.image.parse().ok()?))
        };
        Self(machines.iter().filter_map(of).collect())
    }

    pub(super) fn has(&self, digest: Digest) -> bool {
        self.0.iter().any(|(_, image)| image.digest() == Some(digest))
    }

    pub(super) fn of(&self, entry: &Entry) -> Vec<String> {
        let named = |reference: &Reference| {
            let name = entry.reference.as_ref();
            name.is_some_and(|name| name.with_digest(entry.digest) == reference.with_digest(entry.digest))
        };
        let uses = |reference: &Reference| match reference.digest() {
            Some(digest) => digest == entry.digest,
            None => named(reference),
        };
        self.0.iter().filter(|(_, image)| uses(image)).map(|(name, _)| name.clone()).collect()
    }
}

/// The users of an image as a cell; `None`: they are unknown.
pub(super) fn cell(users: Option<&[String]>) -> String {
    match users {
        None => "?".to_owned(),
        Some([]) => "-".to_owned(),
        Some(users) => {
            let shown = users.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            match users.len().saturating_sub(NAMED) {
                0 => shown,
                more => format!("{shown}, {more} more"),
            }
        }
    }
}

/// The VMs of the cluster that flags and settings name; else of the local cluster, if it runs. The error is the reason in words.
pub(super) fn look(env: &Env, settings: &Settings) -> std::result::Result<Usage, String> {
    block_on(async {
        let connection = connect(env, settings).await?;
        let listed = tokio::time::timeout(PATIENCE, machines(&connection)).await;
        listed.unwrap_or_else(|_| {
            let text = format!("{} has not responded within {PATIENCE:?}", connection.server);
            Err(Error::new(Code::Unreachable, text))
        })
    })
    .map(|machines| Usage::new(&machines))
    .map_err(|error| [vec![error.message], error.causes].concat().join(": "))
}

async fn connect(env: &Env, settings: &Settings) -> Result<Connection> {
    match Connection::open(settings).await {
        // There is no kubeconfig.
        Err(error) if error.code == Code::Unreachable => {
            let local = instance::named(env, settings, &Which::default())?;
            match local.state() {
                State::Running(_) => Connection::local(settings, &local.kubeconfig(), PATIENCE).await,
                _ => Err(error),
            }
        }
        opened => opened,
    }
}

/// The VMs of all namespaces; of that of the context, if the user may not list all.
async fn machines(connection: &Connection) -> Result<Vec<VirtualMachine>> {
    let list = async |api: Api<VirtualMachine>| {
        connection.within("cannot list VMs", api.list(&ListParams::default())).await
    };
    let listed = match list(Api::all(connection.client())).await {
        Err(error) if error.code == Code::Denied => {
            list(Api::namespaced(connection.client(), connection.namespace())).await
        }
        listed => listed,
    };
    Ok(listed?.items)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn entry(name: &str, digest: char) -> Entry {
        let digest = format!("sha256:{}", digest.to_string().repeat(64)).parse().unwrap();
        let reference = (!name.is_empty()).then(|| name.parse().unwrap());
        Entry { reference, digest, size: 1, created: None, stored: None, platform: String::new() }
    }

    pub(crate) fn machine(name: &str, image: &str) -> VirtualMachine {
        serde_json::from_value(json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": { "name": name, "namespace": "x" }, "spec": { "guest": { "cpus": { "min": 1, "max": 2, "use": 1 },
            "memorySlots": { "min": 1, "max": 4, "use": 1 }, "rootDisk": { "image": image } } } }))
        .unwrap()
    }

    #[test]
    fn images_are_compared_by_what_they_mean() {
        let digest = format!("other@sha256:{}", "b".repeat(64));
        let machines = [
            machine("a", "pg:1"),
            machine("b", "docker.io/library/pg:1"),
            machine("c", "pg:2"),
            machine("d", &digest),
            machine("e", "not an image"),
        ];
        let usage = Usage::new(&machines);
        assert_eq!(usage.of(&entry("pg:1", 'a')), ["x/a", "x/b"]);
        assert_eq!(usage.of(&entry("", 'b')), ["x/d"]);
        assert!(usage.of(&entry("pg", 'a')).is_empty());
        assert!(usage.has(entry("", 'b').digest) && !usage.has(entry("", 'a').digest));
    }

    #[test]
    fn a_cell_stays_short() {
        let users: Vec<String> = (0..5).map(|number| format!("x/{number}")).collect();
        assert_eq!(cell(Some(&users)), "x/0, x/1, x/2, 2 more");
        assert_eq!(
            (cell(Some(&users[..1])).as_str(), cell(Some(&[])).as_str(), cell(None).as_str()),
            ("x/0", "-", "?")
        );
    }
}
