//! The VM that is tested with, and what the steps share: waiting, names, nodes.

use std::time::Duration;

use neonvm_api::VirtualMachine;

use super::guest::Guest;
use super::step::Outcome;
use crate::args::cluster::Cluster;
use crate::args::place::Place;
use crate::commands::poll;
use crate::commands::resource::NamespaceClient;
use crate::commands::vm::waiting::state;
use crate::commands::watching::WaitProgress;
use crate::connect::Connection;
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;
use crate::settings::Settings;

pub(super) const VM: &str = "trial";

pub(super) enum Polled<T> {
    Done(T),
    NotYet(String),
}

pub(super) struct Trial<'a> {
    env: &'a Env,
    place: Place,
    pub(super) reporter: &'a Reporter,
    pub(super) client: NamespaceClient,
    pub(super) image: String,
    /// Whether the image was chosen by this program.
    pub(super) is_default_image: bool,
    pub(super) limit: Duration,
    pub(super) only: Vec<String>,
    pub(super) keep: bool,
    /// The secret with the password of the registry: NAME or NAMESPACE/NAME.
    pub(super) pull_secret: Option<String>,
    /// Whether the namespace was named; else it is made.
    pub(super) is_named: bool,
    pub(super) owns_namespace: bool,
    pub(super) made_vm: bool,
    /// Whether the VM runs.
    pub(super) has_vm: bool,
    pub(super) cordoned: Option<String>,
    /// Nodes that run VMs; none: they may not be read.
    pub(super) nodes: Option<Vec<String>>,
}

impl<'a> Trial<'a> {
    pub(super) fn new(
        env: &'a Env,
        settings: &Settings,
        connection: Connection,
        args: &Cluster,
        reporter: &'a Reporter,
        image: String,
        limit: Duration,
    ) -> Self {
        let namespace = args.namespace.clone().unwrap_or_else(generated);
        let place = Place { namespace: Some(namespace.clone()), ..settings.place().clone() };
        Self {
            env,
            place,
            reporter,
            client: NamespaceClient { connection, namespace },
            image,
            is_default_image: args.image.is_none(),
            limit,
            only: args.only.clone(),
            keep: args.keep,
            pull_secret: args.pull_secret.clone(),
            is_named: args.namespace.is_some(),
            owns_namespace: false,
            made_vm: false,
            has_vm: false,
            cordoned: None,
            nodes: None,
        }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.client.namespace
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.client.connection
    }

    /// The way into the guest; none where `ssh` is not installed.
    pub(super) fn guest(&self) -> Result<Option<Guest>> {
        Guest::from_env(self.env, &self.place, VM)
    }

    /// What is left, and how it is removed.
    pub(super) fn kept(&self) -> Option<String> {
        let namespace = self.namespace();
        (self.keep && self.made_vm).then(|| match self.owns_namespace {
            true => format!(
                "kept: VM {VM} in namespace {namespace}; remove both: kubectl delete namespace {namespace}"
            ),
            false => format!("kept: VM {VM}; remove it: neonctl vm delete {VM} -n {namespace}"),
        })
    }

    /// Reads until something is so. A server that cannot be reached is tried until the time is up.
    pub(super) async fn poll<T>(
        &self,
        what: &str,
        mut look: impl AsyncFnMut() -> Result<Polled<T>>,
    ) -> Result<T> {
        let mut last = String::new();
        let found = poll::until(self.limit, async || {
            last = match look().await {
                Ok(Polled::Done(value)) => return Ok(Some(value)),
                Ok(Polled::NotYet(state)) => state,
                Err(error) if error.code == Code::Unreachable => error.message,
                Err(error) => return Err(error),
            };
            self.reporter.waits(&last);
            Ok(None)
        });
        found.await?.ok_or_else(|| {
            Error::new(Code::Timeout, format!("{what}: not within {:?}", self.limit))
                .cause(last)
                .hint("for details, run it again with --keep, then neonctl vm describe")
        })
    }

    /// Reads the VM until `look` has seen enough.
    pub(super) async fn until(
        &self,
        what: &str,
        mut look: impl FnMut(&VirtualMachine) -> WaitProgress,
    ) -> Result<VirtualMachine> {
        self.poll(what, async || {
            let vm = self.client.find(VM).await?;
            Ok(match look(&vm) {
                WaitProgress::Done => Polled::Done(vm),
                WaitProgress::NotYet => Polled::NotYet(state(&vm)),
                WaitProgress::Never(error) => return Err(error),
            })
        })
        .await
    }

    /// The other nodes that run VMs, or why there is nothing to migrate to.
    pub(super) fn others(&self, node: &str) -> std::result::Result<Vec<String>, Outcome> {
        let not_run = |text: &str| Err(Outcome::NotRun(text.to_owned()));
        let Some(nodes) = &self.nodes else { return not_run("you lack permission to list nodes") };
        let others: Vec<String> = nodes.iter().filter(|name| *name != node).cloned().collect();
        if others.is_empty() { not_run("no other node runs VMs") } else { Ok(others) }
    }
}

/// A name that no other test has: time and process.
fn generated() -> String {
    let now = jiff::Timestamp::now().as_second();
    format!("neonvm-test-{:x}-{:x}", now & 0xff_ffff, std::process::id())
}

pub(super) fn node_of(vm: &VirtualMachine) -> String {
    vm.status.as_ref().map(|status| status.node.clone()).unwrap_or_default()
}

/// The pod in which the VM runs.
pub(super) fn pod_of(vm: &VirtualMachine) -> String {
    vm.status.as_ref().map(|status| status.pod_name.clone()).unwrap_or_default()
}

pub(super) fn restarts_of(vm: &VirtualMachine) -> u64 {
    vm.status
        .as_ref()
        .map(|status| u64::try_from(status.restart_count).unwrap_or_default())
        .unwrap_or_default()
}
