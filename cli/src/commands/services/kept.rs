//! Connections to the services that are kept between requests, for commands that repeat them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use neonvm_api::names::{AGENT_ACCOUNT, SCHEDULER_ACCOUNT, SCHEDULER_LEASE, agent_lease};
use neonvm_kit::authority::{SCHEDULER_NAME, agent_name};
use neonvm_kit::call::Caller;
use neonvm_kit::service::Endpoint;
use neonvm_types::agent_inspect::AgentInspect;
use neonvm_types::scheduler_inspect::Inspect;
use serde::de::DeserializeOwned;

use super::{Services, pods};
use crate::error::{Code, Error, Result};

/// How long what leases name is used before they are listed again.
const FOUND: Duration = Duration::from_secs(10);
/// In messages.
const SCHEDULER: &str = "the scheduler";

/// A service, or why there is no connection to it.
type Connected = Result<Caller>;

#[derive(Default)]
pub(crate) struct Kept {
    scheduler: Option<Connected>,
    agents: BTreeMap<String, Connected>,
    found: Option<Instant>,
}

impl Services<'_> {
    /// Looks where the services are, if that was long ago or a request failed since. Connections that still lead to the holder
    /// of a lease stay.
    pub(crate) async fn find(&self, kept: &mut Kept) -> Result<()> {
        if kept.found.is_some_and(|found| found.elapsed() < FOUND) {
            return Ok(());
        }
        let (leases, schedulers, agents) = tokio::try_join!(
            self.leases(),
            pods::of_service(self.connection, &self.namespace, SCHEDULER_ACCOUNT),
            pods::of_service(self.connection, &self.namespace, AGENT_ACCOUNT)
        )?;
        let leading = leases.iter().find(|lease| lease.name_any() == SCHEDULER_LEASE);
        kept.scheduler = match leading.filter(|lease| Endpoint::from_lease(lease).is_some()) {
            Some(lease) => {
                let before = kept.scheduler.take();
                Some(self.again(before, SCHEDULER, lease, (&schedulers, SCHEDULER_NAME)).await)
            }
            None => None,
        };
        let mut before = std::mem::take(&mut kept.agents);
        let prefix = agent_lease("");
        for lease in &leases {
            let name = lease.name_any();
            let Some(node) = name.strip_prefix(&prefix) else { continue };
            if Endpoint::from_lease(lease).is_none() {
                continue;
            }
            let (who, server) = (agent(node), agent_name(node));
            let caller = self.again(before.remove(node), &who, lease, (&agents, &server)).await;
            kept.agents.insert(node.to_owned(), caller);
        }
        kept.found = Some(Instant::now());
        Ok(())
    }

    /// The connection of before if it leads to the holder of the lease, else a new one.
    async fn again(
        &self,
        before: Option<Connected>,
        who: &str,
        lease: &Lease,
        names: (&[Pod], &str),
    ) -> Connected {
        match before {
            Some(Ok(caller)) if Endpoint::from_lease(lease) == Some(caller.endpoint()) => Ok(caller),
            _ => self.connect(who, lease, names).await,
        }
    }

    /// What the scheduler and each agent know, over the connections that were found.
    pub(crate) async fn inspect_kept(&self, kept: &mut Kept) -> (Result<Inspect>, Vec<Result<AgentInspect>>) {
        let Kept { scheduler, agents, .. } = kept;
        let scheduler = async {
            match scheduler {
                Some(caller) => inspect(SCHEDULER, caller).await,
                None => Err(missing(format!("no scheduler is leader in namespace {}", self.namespace))),
            }
        };
        let asked =
            agents.iter_mut().map(|(node, caller)| async move { inspect(&agent(node), caller).await });
        let (scheduler, mut agents) = tokio::join!(scheduler, futures_util::future::join_all(asked));
        if scheduler.is_err() || agents.iter().any(Result::is_err) {
            kept.found = None;
        }
        if agents.is_empty() {
            agents.push(Err(missing(format!("there is no agent in namespace {}", self.namespace))));
        }
        (scheduler, agents)
    }
}

fn agent(node: &str) -> String {
    format!("the agent of {node}")
}

fn missing(message: String) -> Error {
    Error::new(Code::NotFound, message).hint("see which services run: neonctl status")
}

/// A request; a connection that fails is not kept.
async fn inspect<T: DeserializeOwned>(who: &str, caller: &mut Connected) -> Result<T> {
    let connection = match caller {
        Ok(connection) => connection,
        Err(error) => return Err(error.clone()),
    };
    let result = Services::call(who, connection, (Method::GET, "/v1/inspect", Bytes::new())).await;
    if let Err(error) = &result {
        *caller = Err(error.clone());
    }
    result
}
