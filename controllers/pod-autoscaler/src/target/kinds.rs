//! Kinds of the cluster, as discovery shows them; looked up once each.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::{Scope, pinned_kind};
use kube::{Client, Error};
use neonvm_core_pod_autoscaler::status::failure;

use crate::request::{Failed, within};

/// How long what was looked up is believed.
const FRESH: Duration = Duration::from_secs(600);

/// A kind that can be scaled.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) resource: ApiResource,
    /// It has the subresource `scale`.
    pub(crate) has_scale: bool,
}

/// Kinds that were looked up.
pub(crate) struct Kinds {
    client: Client,
    known: Mutex<HashMap<GroupVersionKind, (Instant, Kind)>>,
}

impl Kinds {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    pub(crate) async fn find(&self, wanted: &GroupVersionKind) -> Result<Kind, Failed> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(wanted).cloned();
        if let Some((_, kind)) = known.filter(|(at, _)| at.elapsed() < FRESH) {
            return Ok(kind);
        }
        let what = format!("kind {} of {}", wanted.kind, wanted.api_version());
        let looked_up = async {
            match pinned_kind(&self.client, wanted).await {
                // Discovery answers for the version; that the kind is not in it is a separate error.
                Err(Error::Discovery(_)) => Ok(None),
                done => done.map(Some),
            }
        };
        let found = within(&what, looked_up).await?;
        let missing = || Failed::new(failure::GET_SCALE, format!("the cluster has no {what}"));
        let (resource, abilities) = found.ok_or_else(missing)?;
        if abilities.scope == Scope::Cluster {
            return Err(Failed::new(
                failure::GET_SCALE,
                format!("{what} has no namespace; its objects cannot be scaled"),
            ));
        }
        let scale = format!("{}/scale", resource.plural);
        let is_scale =
            |one: &ApiResource| one.plural == scale || one.plural == "scale" || one.kind == "Scale";
        let has_scale = abilities.subresources.iter().any(|(one, _)| is_scale(one));
        let kind = Kind { resource, has_scale };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(wanted.clone(), (Instant::now(), kind.clone()));
        Ok(kind)
    }

    /// The kind is looked up again when it is needed next.
    pub(crate) fn forget(&self, kind: &Kind) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (_, other)| other.resource != kind.resource);
    }
}
