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
                    if let Err(problem) = self.serve(&client).await {
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

    /// Handles requests until all senders are gone; an error if the book may no longer be trusted.
    async fn serve(&mut self, client: &Client) -> Result<(), String> {
        self.answer(client, Vec::new()).await?;
        let mut batch = Vec::new();
        while self.inbox.recv_many(&mut batch, BATCH).await > 0 {
            self.answer(client, std::mem::take(&mut batch)).await?;
        }
        Ok(())
    }

    async fn answer(&self, client: &Client, mut waiting: Vec<Request>) -> Result<(), String> {
        let mut pause = CONFLICT.0;
        for attempt in 0..ATTEMPTS {
            let doing = self.decide(waiting);
            let outcome = self.write(client).await;
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
    async fn write(&self, client: &Client) -> Result<BTreeSet<Arc<str>>, String> {
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
                    book.reread(&name, object.as_deref());
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
