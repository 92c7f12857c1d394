//! A well-behaved client: create, read, change, watch, delete, over and over; everything must succeed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use neonvm_bench::process::Process;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::kill::PATIENCE;

/// The client at work.
pub(super) struct Witness {
    task: JoinHandle<anyhow::Result<u64>>,
    stop: Arc<AtomicBool>,
    turns: watch::Receiver<u64>,
}

impl Witness {
    pub(super) async fn start(process: &Process) -> anyhow::Result<Self> {
        let api = Api::<Secret>::namespaced(process.client().await?, "default");
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, turns) = watch::channel(0);
        let task = tokio::spawn(work(api, Arc::clone(&stop), sender));
        Ok(Self { task, stop, turns })
    }

    /// Waits until it has done so many more rounds.
    pub(super) async fn rounds(&self, more: u64) -> anyhow::Result<()> {
        let mut turns = self.turns.clone();
        let goal = *turns.borrow() + more;
        tokio::time::timeout(PATIENCE, turns.wait_for(|now| *now >= goal)).await??;
        Ok(())
    }

    /// Lets it finish its round, at least three in all; how many they were.
    pub(super) async fn finish(self) -> anyhow::Result<u64> {
        let progress = self.rounds(3).await;
        self.stop.store(true, Ordering::Relaxed);
        let turns = tokio::time::timeout(PATIENCE, self.task).await.context("it hangs")???;
        progress?;
        Ok(turns)
    }
}

async fn work(api: Api<Secret>, stop: Arc<AtomicBool>, turns: watch::Sender<u64>) -> anyhow::Result<u64> {
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        tokio::time::timeout(PATIENCE, round(&api)).await.context("a round hangs")??;
        turn += 1;
        turns.send_replace(turn);
    }
    Ok(turn)
}

async fn round(api: &Api<Secret>) -> anyhow::Result<()> {
    let body = Secret {
        metadata: ObjectMeta { name: Some("witness".into()), ..ObjectMeta::default() },
        ..Secret::default()
    };
    let made = api.create(&PostParams::default(), &body).await.context("create")?;
    let version = made.metadata.resource_version.unwrap_or_default();
    let parameters = WatchParams::default().fields("metadata.name=witness").timeout(60);
    let mut events = api.watch(&parameters, &version).await.context("watch")?.boxed();
    let change = serde_json::json!({ "stringData": { "key": "value" } });
    api.patch("witness", &PatchParams::default(), &Patch::Merge(&change)).await.context("patch")?;
    let read = api.get("witness").await.context("get")?;
    ensure!(read.data.is_some_and(|data| data.contains_key("key")), "the change is not there");
    api.delete("witness", &DeleteParams::default()).await.context("delete")?;
    loop {
        let event = events.try_next().await.context("watch")?.context("the watch ends early")?;
        if let WatchEvent::Deleted(_) = event {
            return Ok(());
        }
        ensure!(!matches!(event, WatchEvent::Error(_)), "the watch fails: {event:?}");
    }
}
