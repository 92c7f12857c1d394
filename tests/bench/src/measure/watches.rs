//! Delay of watch events with many watchers on one kind, and what watchers cost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, WatchEvent, WatchParams};
use tokio::sync::{Semaphore, mpsc};

use super::{Setup, Shares, load};
use crate::process::Process;
use crate::report::{Row, quantile};

/// Milliseconds.
const GOAL: f64 = 50.0;
/// Writes per second.
const RATE: u32 = 20;

struct Seen {
    version: String,
    at: Instant,
}

pub(super) async fn run(setup: &Setup) -> anyhow::Result<Vec<Row>> {
    let directory = setup.directory()?;
    let process = Process::start(&setup.program, directory.path(), false).await?;
    load::create(&process, "watched", 1, 1024).await?;
    let (sender, mut seen) = mpsc::unbounded_channel();
    // Opened watches are counted with permits: each adds one.
    let opened = Arc::new(Semaphore::new(0));
    let mut watchers = tokio::task::JoinSet::new();
    let memory = process.memory()?;
    for _ in 0..setup.watchers {
        let api = Api::<ConfigMap>::namespaced(process.client().await?, load::NAMESPACE);
        watchers.spawn(follow(api, sender.clone(), Arc::clone(&opened)));
    }
    drop(sender);
    let all = u32::try_from(setup.watchers)?;
    tokio::time::timeout(Duration::from_secs(60), opened.acquire_many(all)).await??.forget();
    let memory = process.memory()?.saturating_sub(memory);
    let writes = RATE * u32::try_from(setup.duration.as_secs())?.max(1);
    let before = Shares::now(&process)?;
    let start = Instant::now();
    let answered = write(&process, writes).await?;
    let expected = answered.len() * setup.watchers;
    let mut delays = (Vec::with_capacity(expected), Vec::with_capacity(expected));
    while delays.0.len() < expected {
        let event: Seen = tokio::time::timeout(Duration::from_secs(30), seen.recv())
            .await?
            .ok_or_else(|| anyhow::anyhow!("a watch ended"))?;
        let Some((sent, done)) = answered.get(&event.version) else { continue };
        delays.0.push(event.at.duration_since(*sent).as_secs_f64() * 1e3);
        delays.1.push(event.at.saturating_duration_since(*done).as_secs_f64() * 1e3);
    }
    let note = before.note(&process, expected, start.elapsed())?;
    watchers.shutdown().await;
    let what = |what: &str| format!("{} watchers, {RATE} writes/s: {what}", setup.watchers);
    let each = memory as f64 / 1024.0 / f64::from(all.max(1));
    Ok(vec![
        Row::at_most("watches", &what("sent → seen, p99"), quantile(&mut delays.0, 0.99), "ms", GOAL)
            .note(note),
        Row::plain("watches", &what("sent → seen, p50"), quantile(&mut delays.0, 0.5), "ms"),
        Row::plain("watches", &what("answered → seen, p99"), quantile(&mut delays.1, 0.99), "ms"),
        Row::plain("watches", "memory of one open watch with its connection", each, "KiB"),
    ])
}

async fn follow(
    api: Api<ConfigMap>,
    seen: mpsc::UnboundedSender<Seen>,
    opened: Arc<Semaphore>,
) -> anyhow::Result<()> {
    let mut events = api.watch(&WatchParams::default().timeout(290), "0").await?.boxed();
    // The state at the start arrives first; with it the watch is known to run.
    events.try_next().await?;
    opened.add_permits(1);
    while let Some(event) = events.try_next().await? {
        let at = Instant::now();
        if let WatchEvent::Modified(object) = event {
            let version = object.metadata.resource_version.unwrap_or_default();
            if seen.send(Seen { version, at }).is_err() {
                break;
            }
        }
    }
    Ok(())
}

/// Patches at a steady rate; when each version was sent and answered.
async fn write(process: &Process, writes: u32) -> anyhow::Result<BTreeMap<String, (Instant, Instant)>> {
    let api = Api::<ConfigMap>::namespaced(process.client().await?, load::NAMESPACE);
    let mut answered = BTreeMap::new();
    let mut tick = tokio::time::interval(Duration::from_secs(1) / RATE);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for turn in 0..writes {
        tick.tick().await;
        let sent = Instant::now();
        let change = serde_json::json!({ "data": { "turn": turn.to_string() } });
        let done = api.patch("watched-0", &PatchParams::default(), &Patch::Merge(&change)).await?;
        answered.insert(done.metadata.resource_version.unwrap_or_default(), (sent, Instant::now()));
    }
    Ok(answered)
}
