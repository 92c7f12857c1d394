//! The kill loop: `kill -9` at any moment, under load.
//!
//! Guarantees checked after each restart: acknowledged writes are there with the acknowledged version; other writes are
//! there as a whole or not at all; no version is given twice or goes backwards; a watch resumed from the last version seen
//! gives exactly the missed events, or fails with `Expired`.

mod follower;
mod ledger;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use neonvm_bench::process::{Process, Program};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::random::Random;
use follower::Follower;
use ledger::Ledger;
use writer::Writer;

const WRITERS: usize = 32;
/// A hang is a failure after this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Every so many rounds the load ends before the kill, so that the follower can have seen everything.
const QUIET_EVERY: u32 = 4;
/// Every so many rounds the server is also killed while it starts.
const EARLY_EVERY: u32 = 5;

#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Kills of a serving server.
    pub kills: u32,
    /// Kills of a starting server.
    pub early: u32,
    /// Writes that were answered.
    pub acknowledged: u64,
    /// Writes that were not, and were found done.
    pub done: u64,
    /// Writes that were not, and were found not done.
    pub undone: u64,
    /// Watches that continued after a restart.
    pub resumed: u32,
    /// Watches that expired, so that the client lists again.
    pub expired: u32,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kills, early, acknowledged, done, undone, resumed, expired } = self;
        write!(
            f,
            "{kills} kills under load and {early} during start: {acknowledged} writes acknowledged, none lost; \
             {} unanswered, {done} of them done, {undone} not; watch resumed {resumed} times, expired {expired} times",
            done + undone
        )
    }
}

/// Runs the loop.
///
/// # Errors
/// The first broken guarantee, with the round and the seed.
pub async fn run(program: &Program, rounds: u32, seed: u64) -> anyhow::Result<Outcome> {
    let directory = tempfile::Builder::new().prefix("neonvm-kill-").tempdir()?;
    let mut random = Random::new(seed);
    let mut world = World {
        outcome: Outcome::default(),
        ledger: Ledger::default(),
        follower: Follower::default(),
        writers: (0..WRITERS).map(|number| Writer::new(number, random.next())).collect(),
        tokens: Arc::default(),
    };
    for round in 0..rounds {
        let turn = world.round(program, directory.path(), round, &mut random);
        turn.await.with_context(|| format!("round {round} of seed {seed}"))?;
    }
    // What the last kill left behind is checked as well.
    let process = Process::start(program, directory.path(), false).await?;
    world.settle(&process).await.with_context(|| format!("after the last round of seed {seed}"))?;
    Ok(world.outcome)
}

struct World {
    outcome: Outcome,
    ledger: Ledger,
    follower: Follower,
    writers: Vec<Writer>,
    tokens: Arc<AtomicU64>,
}

/// The marker that ends a quiet round; no round has that number.
fn rounds_end(round: u32) -> u32 {
    u32::MAX - round
}

pub(crate) fn api(client: kube::Client) -> Api<ConfigMap> {
    Api::namespaced(client, "default")
}

impl World {
    async fn round(
        &mut self,
        program: &Program,
        directory: &Path,
        round: u32,
        random: &mut Random,
    ) -> anyhow::Result<()> {
        if round % EARLY_EVERY == EARLY_EVERY - 1 {
            let mut starting = Process::spawn(program, directory, false)?;
            tokio::time::sleep(Duration::from_micros(random.below(40_000))).await;
            starting.kill()?;
            self.outcome.early += 1;
        }
        let mut process = Process::start(program, directory, false).await?;
        self.settle(&process).await?;
        let events = self.resume(&process, round).await?;
        let follower = std::mem::take(&mut self.follower);
        let marks = Arc::new(Semaphore::new(0));
        let following = tokio::spawn(follower.follow(events, Arc::clone(&marks)));

        let (acknowledged, stop) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicBool::new(false)));
        let mut running = JoinSet::new();
        let client = process.client().await?;
        for writer in std::mem::take(&mut self.writers) {
            let shared = writer::Shared {
                api: api(client.clone()),
                acknowledged: Arc::clone(&acknowledged),
                tokens: Arc::clone(&self.tokens),
                stop: Arc::clone(&stop),
            };
            running.spawn(writer.run(shared));
        }
        let enough = u32::try_from(20 + random.below(400)).unwrap_or(20);
        let reached = tokio::time::timeout(PATIENCE, acknowledged.acquire_many(enough)).await;
        reached.context("the writers make no progress")??.forget();
        if round % QUIET_EVERY == QUIET_EVERY - 1 {
            stop.store(true, Ordering::Relaxed);
            while let Some(done) = running.join_next().await {
                self.writers.push(done??);
            }
            follower::mark(&api(client), rounds_end(round)).await?;
            tokio::time::timeout(PATIENCE, marks.acquire())
                .await
                .context("the watch lags for good")??
                .forget();
        }
        process.kill()?;
        self.outcome.kills += 1;
        while let Some(done) = running.join_next().await {
            self.writers.push(done??);
        }
        self.follower =
            tokio::time::timeout(PATIENCE, following).await.context("the watch outlives its server")???;
        self.take_notes()
    }

    /// Carries what writers and follower have seen into the ledger.
    fn take_notes(&mut self) -> anyhow::Result<()> {
        for writer in &mut self.writers {
            self.outcome.acknowledged += writer.take_acknowledged();
            for observation in writer.take_observations() {
                self.ledger.note(observation)?;
            }
        }
        for observation in self.follower.take_observations() {
            self.ledger.note(observation)?;
        }
        Ok(())
    }

    /// Compares what is there with what was acknowledged.
    async fn settle(&mut self, process: &Process) -> anyhow::Result<()> {
        let listed = ledger::list(&api(process.client().await?)).await?;
        ensure!(
            listed.version >= self.ledger.highest(),
            "the server is at version {} and had shown {}",
            listed.version,
            self.ledger.highest()
        );
        for observation in listed.observations() {
            self.ledger.note(observation)?;
        }
        for writer in &mut self.writers {
            let (done, undone) = writer.settle(&listed)?;
            self.outcome.done += done;
            self.outcome.undone += undone;
        }
        self.follower.compare(&listed)
    }

    /// Continues the watch from the last version seen.
    async fn resume(&mut self, process: &Process, round: u32) -> anyhow::Result<follower::Events> {
        let api = api(process.client().await?);
        let before = ledger::list(&api).await?;
        if round == 0 {
            self.follower.reset(&before);
        }
        let mut events = self.follower.watch(&api).await?;
        follower::mark(&api, round).await?;
        if self.follower.until_marker(&mut events, round).await? {
            if round > 0 {
                self.outcome.resumed += 1;
            }
            self.follower.same_as(&before)?;
        } else {
            self.outcome.expired += 1;
            self.follower.reset(&ledger::list(&api).await?);
            events = self.follower.watch(&api).await?;
        }
        Ok(events)
    }
}
