//! Load: many tasks over several connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta};

use crate::process::Process;

/// Namespace of everything measured.
pub(super) const NAMESPACE: &str = "default";

/// An object of about `bytes` bytes as stored.
pub(super) fn object(name: &str, bytes: usize) -> ConfigMap {
    // Name, namespace, uid, times and managed fields take about 400 bytes.
    let filler = "x".repeat(bytes.saturating_sub(400));
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some([("filler".to_owned(), filler)].into()),
        ..ConfigMap::default()
    }
}

/// Runs `task(api, number, turn)` over and over in `tasks` tasks until the time is over; returns how often it ran
/// and how long it really took.
pub(super) async fn for_time<F, T>(
    process: &Process,
    tasks: usize,
    time: Duration,
    task: F,
) -> anyhow::Result<(usize, Duration)>
where
    F: Fn(Api<ConfigMap>, usize, usize) -> T + Clone + Send + Sync + 'static,
    T: Future<Output = anyhow::Result<()>> + Send,
{
    let start = Instant::now();
    let end = start + time;
    let mut running = tokio::task::JoinSet::new();
    // Clients queue inside: a handful of them for all tasks, so that no lock of the client is what is measured.
    let mut clients = Vec::new();
    for _ in 0..tasks.min(8) {
        clients.push(process.client().await?);
    }
    for (number, client) in (0..tasks).zip(clients.into_iter().cycle()) {
        let (task, api) = (task.clone(), Api::<ConfigMap>::namespaced(client, NAMESPACE));
        running.spawn(async move {
            let mut turns = 0;
            while Instant::now() < end {
                task(api.clone(), number, turns).await?;
                turns += 1;
            }
            anyhow::Ok(turns)
        });
    }
    let mut sum = 0;
    while let Some(done) = running.join_next().await {
        sum += done??;
    }
    Ok((sum, start.elapsed()))
}

/// Creates objects `prefix-0` to `prefix-(count-1)`, many at a time; returns how long it took.
pub(super) async fn create(
    process: &Process,
    prefix: &'static str,
    count: usize,
    bytes: usize,
) -> anyhow::Result<Duration> {
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..count.min(128) {
        let (next, api) =
            (Arc::clone(&next), Api::<ConfigMap>::namespaced(process.client().await?, NAMESPACE));
        running.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return anyhow::Ok(());
                }
                let body = object(&format!("{prefix}-{number}"), bytes);
                api.create(&kube::api::PostParams::default(), &body).await?;
            }
        });
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    Ok(start.elapsed())
}

/// Operations per second.
pub(super) fn rate(operations: usize, took: Duration) -> f64 {
    operations as f64 / took.as_secs_f64()
}
