//! A writer that knows what its objects must be.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{bail, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use tokio::sync::Semaphore;

use super::ledger::{self, Listed, Observation};
use crate::random::Random;

const OBJECTS: usize = 4;

/// What a writer shares with others.
pub(super) struct Shared {
    pub(super) api: Api<ConfigMap>,
    /// Gets a permit for each acknowledged write.
    pub(super) acknowledged: Arc<Semaphore>,
    pub(super) tokens: Arc<AtomicU64>,
    pub(super) stop: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Put(u64),
    Delete,
}

#[derive(Debug)]
struct Object {
    name: String,
    /// Version and token, as acknowledged or as found after a restart.
    known: Option<(u64, u64)>,
    pending: Option<Write>,
}

/// Only this client writes its objects.
#[derive(Debug)]
pub(super) struct Writer {
    objects: Vec<Object>,
    random: Random,
    /// Everything acknowledged so far must be newer than this when it comes.
    base: u64,
    acknowledged: u64,
    observations: Vec<Observation>,
}

impl Writer {
    pub(super) fn new(number: usize, seed: u64) -> Self {
        let object = |at| Object { name: format!("write-{number}-{at}"), known: None, pending: None };
        Self {
            objects: (0..OBJECTS).map(object).collect(),
            random: Random::new(seed),
            base: 0,
            acknowledged: 0,
            observations: Vec::new(),
        }
    }

    pub(super) fn take_acknowledged(&mut self) -> u64 {
        std::mem::take(&mut self.acknowledged)
    }

    pub(super) fn take_observations(&mut self) -> Vec<Observation> {
        std::mem::take(&mut self.observations)
    }

    /// Writes until the server is gone or `stop` is set.
    pub(super) async fn run(mut self, shared: Shared) -> anyhow::Result<Self> {
        while !shared.stop.load(Ordering::Relaxed) {
            let at = usize::try_from(self.random.below(OBJECTS as u64)).unwrap_or(0);
            let choice = self.random.below(10);
            let Some(object) = self.objects.get_mut(at) else { continue };
            let token = shared.tokens.fetch_add(1, Ordering::Relaxed) + 1;
            let delete = object.known.is_some() && choice < 2;
            object.pending = Some(if delete { Write::Delete } else { Write::Put(token) });
            let answer = send(&shared.api, object, token, choice).await;
            match answer {
                Ok(made) => {
                    object.pending = None;
                    object.known = None;
                    if let Some(made) = made {
                        let seen = ledger::observe(&made, false)?;
                        ensure!(seen.token == token, "the answer to {token} shows {seen:?}");
                        ensure!(seen.version > self.base, "{seen:?} was given after version {}", self.base);
                        object.known = Some((seen.version, seen.token));
                        self.observations.push(seen);
                    }
                    self.acknowledged += 1;
                    shared.acknowledged.add_permits(1);
                }
                // No other client writes these objects, and no request is invalid.
                Err(kube::Error::Api(status)) => bail!("{} was refused: {status:?}", object.name),
                Err(_) => break,
            }
        }
        Ok(self)
    }

    /// Compares with what is there after a restart; how many unanswered writes were done and not done.
    pub(super) fn settle(&mut self, listed: &Listed) -> anyhow::Result<(u64, u64)> {
        let mut counts = (0, 0);
        for object in &mut self.objects {
            let found = listed.objects.get(&object.name).copied();
            let (name, known) = (&object.name, object.known);
            match object.pending.take() {
                None => ensure!(found == known, "{name} was acknowledged as {known:?} and is {found:?}"),
                Some(_) if found == known => counts.1 += 1,
                Some(Write::Delete) => {
                    ensure!(found.is_none(), "{name} was {known:?}, then being deleted, and is {found:?}");
                    counts.0 += 1;
                }
                Some(Write::Put(token)) => {
                    let newer = found.is_some_and(|(version, found)| {
                        found == token && known.is_none_or(|(old, _)| version > old)
                    });
                    ensure!(newer, "{name} was {known:?}, then being written with {token}, and is {found:?}");
                    counts.0 += 1;
                }
            }
            object.known = found;
        }
        self.base = listed.version;
        Ok(counts)
    }
}

/// Create, replace, patch or delete; the object that is left, if one is.
async fn send(
    api: &Api<ConfigMap>,
    object: &Object,
    token: u64,
    choice: u64,
) -> Result<Option<ConfigMap>, kube::Error> {
    let name = &object.name;
    let mut body = ledger::object(name, token);
    let Some((version, _)) = object.known else {
        return api.create(&PostParams::default(), &body).await.map(Some);
    };
    match choice {
        0 | 1 => api.delete(name, &DeleteParams::default()).await.map(|_| None),
        2..=5 => {
            body.metadata.resource_version = Some(version.to_string());
            api.replace(name, &PostParams::default(), &body).await.map(Some)
        }
        _ => api.patch(name, &PatchParams::default(), &Patch::Merge(&body)).await.map(Some),
    }
}
