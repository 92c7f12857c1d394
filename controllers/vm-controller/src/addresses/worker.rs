//! The one that changes the book and writes the pools.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::api::{Patch, PostParams};
use kube::{Api, Client};
use neonvm_api::IPPool;
use neonvm_core_overlay::{PoolVersion, PoolWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::changes::{self, Changed};
use super::{AddressConfig, Operation, Request, Shared, load};
use crate::cache::Cache;
use crate::clock::now;
use crate::request::MANAGER;
use crate::request::{is_conflict, is_missing, patching, within};

/// Requests answered in one go.
const BATCH: usize = 4096;
/// Pools written at the same time.
const WRITES: usize = 8;
/// How often a request is tried when others write the same pools.
const ATTEMPTS: u32 = 10;
/// First and longest pause before pools are read again that could not be.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));
/// First and longest pause after a conflict; doubles.
const CONFLICT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(320));

/// The one that changes the book and writes the pools.
#[derive(Debug)]
pub(crate) struct Worker {
    config: AddressConfig,
    namespace: String,
    book: Shared,
    inbox: mpsc::Receiver<Request>,
}

/// How the write of a pool went.
enum Written {
    Well(PoolVersion),
    /// Nothing was written; this is the object now, if there is one.
    Refused(Option<Box<IPPool>>),
    /// The outcome is unknown.
    Unknown(String),
}

impl Worker {
    pub(super) fn new(
        config: AddressConfig,
        namespace: String,
        book: Shared,
        inbox: mpsc::Receiver<Request>,
    ) -> Self {
        Self { config, namespace, book, inbox }
    }

    /// Works; never returns. To be started when all VMs are in the cache. `known` is called each time the pools were
    /// read: VMs may wait for that.
    pub(crate) async fn run(mut self, client: Client, cache: &Cache, known: impl Fn()) {
        let mut pause = PAUSES.0;
        loop {
            match load::load(&client, &self.config, &self.namespace, cache).await {
                Ok(book) => {
                    *self.book.lock() = Some(book);
                    pause = PAUSES.0;
                    known();
                    // What the sweep found is written with the first request, or now.
                    if let Err(problem) = self.serve(&client, cache, &known).await {
                        tracing::warn!(problem, "addresses are read again");
                    } else {
                        // This replica stops to lead, and the task is about to be aborted: its end would count as a failure.
                        return std::future::pending().await;
                    }
                    *self.book.lock() = None;
                }
                Err(problem) => {
                    tracing::warn!(problem, "there are no addresses on the overlay network");
                    self.refuse(&problem, Instant::now() + pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    /// Rejects all requests with the problem, until it is time to try again.
    async fn refuse(&mut self, problem: &str, until: Instant) {
        loop {
            tokio::select! {
                request = self.inbox.recv() => match request {
                    Some(Request { answer: Some(answer), .. }) => drop(answer.send(Err(problem.to_owned()))),
                    Some(_) => {}
                    None => return std::future::pending().await,
                },
                () = sleep_until(until) => return,
            }
        }
    }

    /// Handles requests until all senders are gone, and changes of the pools by others; an error if the book may no longer be trusted.
    async fn serve(&mut self, client: &Client, cache: &Cache, known: &impl Fn()) -> Result<(), String> {
        self.answer(client, cache, Vec::new()).await?;
        let (sender, mut changed) = mpsc::unbounded_channel();
        let (namespace, book) = (self.namespace.clone(), self.book.clone());
        let watching = changes::watch(client.clone(), &namespace, &book, sender);
        tokio::pin!(watching);
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                count = self.inbox.recv_many(&mut batch, BATCH) => match count {
                    0 => return Ok(()),
                    _ => self.answer(client, cache, std::mem::take(&mut batch)).await?,
                },
                Some(first) = changed.recv() => {
                    let all = std::iter::once(first).chain(std::iter::from_fn(|| changed.try_recv().ok()));
                    let names = all.filter(|change| self.is_news(change)).map(|(name, _)| name).collect();
                    if self.rebuild(client, cache, &names).await? {
                        known();
                    }
                }
                () = &mut watching => return Err("the watch of the address pools has ended".to_owned()),
            }
        }
    }

    fn is_news(&self, (name, version): &Changed) -> bool {
        self.book.lock().as_ref().is_some_and(|book| book.version(name) != version.as_ref())
    }

    /// Reads pools that may have been changed by others, and writes back what they have lost; whether there was any such pool.
    async fn rebuild(
        &self,
        client: &Client,
        cache: &Cache,
        names: &BTreeSet<String>,
    ) -> Result<bool, String> {
        let api: Api<IPPool> = Api::namespaced(client.clone(), &self.namespace);
        let mut any = false;
        for name in names {
            let object = within(api.get_opt(name)).await.map_err(|error| describe(name, &error))?;
            let version = object.as_ref().and_then(PoolVersion::from_object);
            let mut guard = self.book.lock();
            let Some(book) = guard.as_mut().filter(|book| book.version(name) != version.as_ref()) else {
                continue;
            };
            tracing::warn!(
                pool = name,
                "an address pool was changed by another client; it is rebuilt from the VMs"
            );
            load::report(&book.rebuild(now().unix(), name, object.as_ref(), &load::vms(cache)));
            any = true;
        }
        if any {
            self.answer(client, cache, Vec::new()).await?;
        }
        Ok(any)
    }

    async fn answer(&self, client: &Client, cache: &Cache, mut waiting: Vec<Request>) -> Result<(), String> {
        let mut pause = CONFLICT.0;
        for attempt in 0..ATTEMPTS {
            let doing = self.decide(waiting);
            let outcome = self.write(client, cache).await;
            let failed = match outcome {
                Ok(failed) => failed,
                Err(problem) => {
                    for (request, _) in doing {
                        respond(request, Err(problem.clone()));
                    }
                    return Err(problem);
                }
            };
            waiting = Vec::new();
            for (request, pools) in doing {
                if pools.iter().any(|pool| failed.contains(pool)) {
                    waiting.push(request);
                } else {
                    respond(request, Ok(()));
                }
            }
            if failed.is_empty() {
                return Ok(());
            }
            if attempt + 1 < ATTEMPTS {
                sleep(pause).await;
                pause = (pause * 2).min(CONFLICT.1);
            }
        }
        let problem = "others write the address pools all the time; it is tried again";
        waiting.into_iter().for_each(|request| respond(request, Err(problem.to_owned())));
        Ok(())
    }

    /// Changes the book. What is left are requests that wait for these pools to be written.
    fn decide(&self, requests: Vec<Request>) -> Vec<(Request, Vec<Arc<str>>)> {
        let mut guard = self.book.lock();
        let Some(book) = guard.as_mut() else { return Vec::new() };
        let time = now().unix();
        let mut doing = Vec::with_capacity(requests.len());
        for request in requests {
            match &request.operation {
                Operation::Acquire { id, wanted } => match book.acquire(time, id, *wanted) {
                    Ok(lease) => doing.push((request, vec![lease.pool])),
                    Err(refusal) => respond(request, Err(refusal.to_string())),
                },
                Operation::Release { id } => {
                    let pools = book.release(time, id);
                    doing.push((request, pools));
                }
            }
        }
        doing
    }

    /// Writes what is pending. Returns the pools of which the write was refused, so that their requests must be
    /// repeated.
    async fn write(&self, client: &Client, cache: &Cache) -> Result<BTreeSet<Arc<str>>, String> {
        let time = now().unix();
        let writes: Vec<PoolWrite> = {
            let guard = self.book.lock();
            let Some(book) = guard.as_ref() else { return Err("the address pools were not read".to_owned()) };
            book.pending().filter_map(|name| book.write_of(name, time)).collect()
        };
        let api: Api<IPPool> = Api::namespaced(client.clone(), &self.namespace);
        let written = writes.into_iter().map(|write| {
            let api = api.clone();
            async move {
                let written = write_one(&api, &write).await;
                (write.name, written)
            }
        });
        let mut written = futures_util::stream::iter(written).buffer_unordered(WRITES);
        let (mut failed, mut problem) = (BTreeSet::new(), None);
        while let Some((name, written)) = written.next().await {
            let mut guard = self.book.lock();
            let Some(book) = guard.as_mut() else { continue };
            match written {
                Written::Well(version) => book.written(&name, time, version),
                Written::Refused(object) => {
                    load::report(&book.rebuild(time, &name, object.as_deref(), &load::vms(cache)));
                    failed.insert(name);
                }
                Written::Unknown(why) => problem = Some(why),
            }
        }
        problem.map_or(Ok(failed), Err)
    }
}

fn respond(request: Request, result: Result<(), String>) {
    if let Some(answer) = request.answer {
        // The caller may have gone; the address is found by its name later.
        let _ = answer.send(result);
    }
}

async fn write_one(api: &Api<IPPool>, write: &PoolWrite) -> Written {
    let sent = if write.is_new {
        let object: IPPool = match serde_json::from_value(write.body.clone()) {
            Ok(object) => object,
            Err(error) => return Written::Unknown(format!("pool {}: {error}", write.name)),
        };
        let how = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        within(api.create(&how, &object)).await
    } else {
        within(api.patch(&write.name, &patching(), &Patch::Merge(&write.body))).await
    };
    match sent {
        Ok(object) => match PoolVersion::from_object(&object) {
            Some(version) => Written::Well(version),
            None => Written::Unknown(format!("pool {} was stored without a version", write.name)),
        },
        Err(error) if is_conflict(&error) || is_missing(&error) => {
            match within(api.get_opt(&write.name)).await {
                Ok(object) => Written::Refused(object.map(Box::new)),
                Err(error) => Written::Unknown(describe(&write.name, &error)),
            }
        }
        Err(error) => Written::Unknown(describe(&write.name, &error)),
    }
}

fn describe(name: &str, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("pool {name} cannot be written: {}", status.message),
        _ => format!("pool {name} cannot be written: the API server cannot be reached"),
    }
}
