//! A suspended machine: what its first packet waits for, beside a bare QEMU that starts from the same kind of file; what a suspension and its
//! cancellation take; what a machine costs asleep.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::{Phase, PowerState};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::Setup;
use super::bare::Recipe;
use super::bare::stored::{Stored, echo, listens};
use super::cluster::{self, Cluster, machines};
use super::watch::Watch;
use super::{NAME_SUSPEND as NAME, load, log, milliseconds, missing, resident, start};
use crate::report::{Row, Rows, quantile};

/// Wakes of each kind, and cancellations.
const ROUNDS: usize = 20;
const FULL_ROUNDS: usize = 10;
/// Before a packet that wakes a machine, and after it.
const REST: Duration = Duration::from_secs(1);
/// How long a sleeping machine is looked at.
const LOOK: Duration = Duration::from_secs(60);
/// Port of the guest that sends everything back.
const ECHO: u16 = 7;
/// MiB that the workloads write: programs, which compress about as pages of a database do.
const FILLED: u64 = 200;
const FULL: u64 = 4096;
/// Milliseconds.
const WAKE: (f64, f64) = (250.0, 500.0);
const SUSPEND: f64 = 700.0;
const CANCEL: f64 = 100.0;
/// Times what a bare QEMU needs; times what little memory needs.
const BESIDE_BARE: f64 = 1.3;
const MORE_MEMORY: f64 = 1.2;
/// MiB a second, MiB, percent of one CPU.
const RATE: f64 = 700.0;
const RESIDENT: f64 = 12.0;
const CPU: f64 = 0.01;

/// All of it, in a cluster of its own.
pub(in super::super) async fn run(setup: &Setup, rows: &mut Rows) -> anyhow::Result<()> {
    if let Some(missing) = missing()? {
        return rows.push(Row::plain(NAME, "skipped", 0.0, "").note(missing));
    }
    rows.push(Row::plain(NAME, "load of this host, before", load(), "").note("average of one minute"))?;
    let cluster = Cluster::start(setup, &["--nodes", "1", "--cpus", "4", "--memory", "8Gi"])?;
    let mut sleeper = Sleeper::create(&cluster, "sleeps", 1024, FILLED).await?;
    let process = log::child(start::runner(&cluster)?)?;
    let bare = Recipe::from_process(process, &cluster.home().join("bare"))?.store(ECHO).await?;
    let slept = sleeper.rounds(ROUNDS, Some(&bare)).await?;
    rows.extend(wakes(&slept, &bare))?;
    rows.extend(sleeper.asleep(&cluster).await?)?;
    sleeper.delete().await?;

    let size = full();
    let mut sleeper = Sleeper::create(&cluster, "full", size + 1024, size).await?;
    let full = sleeper.rounds(FULL_ROUNDS, None).await?;
    rows.push(more_memory(&slept, &full, size))?;
    rows.extend(stores(&slept, &full, &bare))?;
    rows.push(sleeper.cancels(&full).await?)?;
    sleeper.delete().await?;
    cluster.down()
}

/// MiB in use of the larger machine: what this host has to spare, at most [`FULL`].
fn full() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    // Guest, file and a second guest that starts from it.
    (kib / 1024 / 3).next_multiple_of(256).clamp(512, FULL)
}

/// What rounds have taken, in milliseconds, and MiB in the last file.
#[derive(Debug, Default)]
struct Slept {
    open: Vec<f64>,
    new: Vec<f64>,
    bare: Vec<f64>,
    stored: Vec<f64>,
    mebibytes: f64,
}

/// A machine with a connection that is never closed.
struct Sleeper {
    client: Client,
    name: &'static str,
    address: SocketAddr,
    open: TcpStream,
}

impl Sleeper {
    /// One with so many MiB of memory, of which its workload has written so many.
    async fn create(cluster: &Cluster, name: &'static str, memory: u64, filled: u64) -> anyhow::Result<Self> {
        // Each program that is started takes a while in an emulated guest: few large pieces.
        let (bytes, pieces) = (filled << 20, filled / 16 + 1);
        let workload = format!(
            "mkdir -p /full; mount -t tmpfs -o size=90% full /full; b=/bin/busybox; b=\"$b $b $b $b\"; b=\"$b $b $b $b\"; \
             i=0; while [ $i -lt {pieces} ]; do cat $b; i=$((i+1)); done | head -c {bytes} >/full/file; \
             exec nc -ll -p {ECHO} -e cat"
        );
        cluster.image_of(&format!("{name}:1"), &workload)?;
        let slots = memory / 256;
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": name},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "guest": {
                "cpus": {"min": 1, "max": 1, "use": 1},
                "memorySlotSize": "256Mi", "memorySlots": {"min": slots, "max": slots, "use": slots},
                "rootDisk": {"image": format!("{name}:1")}, "ports": [{"port": ECHO}]}}
        }))?;
        let client = cluster.client().await?;
        let mut watch = Watch::open(&client).await?;
        let address = watch.create(&client, &object).await?;
        let address = format!("{address}:{ECHO}").parse()?;
        listens(address).await?;
        let open = TcpStream::connect(address).await?;
        open.set_nodelay(true)?;
        let mut sleeper = Self { client, name, address, open };
        sleeper.answers().await?;
        Ok(sleeper)
    }

    async fn delete(self) -> anyhow::Result<()> {
        Watch::open(&self.client).await?.delete(&self.client, self.name).await
    }

    /// Milliseconds until a byte comes back by the open connection.
    async fn answers(&mut self) -> anyhow::Result<f64> {
        let begun = Instant::now();
        self.open.write_all(b"x").await?;
        self.open.read_exact(&mut [0]).await?;
        Ok(milliseconds(begun.elapsed()))
    }

    async fn request(&self) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": {"powerState": PowerState::Suspended}}));
        machines(&self.client).patch(self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Suspends it; MiB that were stored, and milliseconds that it took.
    async fn suspend(&self) -> anyhow::Result<(f64, f64)> {
        let mut watch = Watch::open(&self.client).await?;
        self.request().await?;
        let mut message = String::new();
        watch
            .machine(self.name, "Suspended", |machine| {
                message = shown(machine, "Suspended");
                machine.status.as_ref().and_then(|status| status.phase) == Some(Phase::Suspended)
            })
            .await?;
        let numbers: Vec<f64> = message.split(' ').filter_map(|word| word.parse().ok()).collect();
        ensure!(numbers.len() == 2, "{message:?} does not have size and time");
        Ok((numbers.first().copied().unwrap_or(0.0), numbers.get(1).copied().unwrap_or(0.0)))
    }

    /// Waits until it counts as one that runs.
    async fn runs(&self) -> anyhow::Result<()> {
        let mut watch = Watch::open(&self.client).await?;
        let is = |machine: &VirtualMachine| {
            let status = machine.status.clone().unwrap_or_default();
            machine.spec.power_state != Some(PowerState::Suspended)
                && status.power_state.is_none()
                && status.phase == Some(Phase::Running)
        };
        if !is(&cluster::typed(&machines(&self.client).get(self.name).await?)?) {
            watch.machine(self.name, "awake", is).await?;
        }
        Ok(())
    }

    /// Wakes it by data of its open connection and by a new one, in turn, and a bare machine.
    async fn rounds(&mut self, rounds: usize, bare: Option<&Stored>) -> anyhow::Result<Slept> {
        let mut slept = Slept::default();
        for _ in 0..rounds {
            for is_new in [false, true] {
                let (mebibytes, took) = self.suspend().await?;
                slept.stored.push(took);
                slept.mebibytes = mebibytes;
                tokio::time::sleep(REST).await;
                if is_new {
                    slept.new.push(echo(self.address, Instant::now()).await?);
                } else {
                    slept.open.push(self.answers().await?);
                }
                self.runs().await?;
                tokio::time::sleep(REST).await;
            }
            if let Some(bare) = bare {
                slept.bare.push(bare.wake().await?);
            }
        }
        Ok(slept)
    }

    /// What it costs while it sleeps.
    async fn asleep(&mut self, cluster: &Cluster) -> anyhow::Result<Vec<Row>> {
        self.suspend().await?;
        tokio::time::sleep(REST).await;
        let (runner, mut watch) = (start::runner(cluster)?, Watch::open(&self.client).await?);
        let before = ran(runner)?;
        let mut changes = 0;
        let look = async {
            while watch.next().await.is_ok() {
                changes += 1;
            }
        };
        let _ = tokio::time::timeout(LOOK, look).await;
        let after = ran(runner)?;
        let memory = resident::resident(runner)?;
        self.answers().await?;
        self.runs().await?;
        let share = (after.0 - before.0).as_secs_f64() / LOOK.as_secs_f64() * 100.0;
        let seconds = LOOK.as_secs();
        Ok(vec![
            Row::at_most(NAME, "asleep: its runner, resident", memory, "MiB", RESIDENT).note("no QEMU runs"),
            Row::at_most(NAME, "asleep: CPU of its runner", share, "%", CPU)
                .note(format!("of one CPU, in {seconds} s")),
            Row::at_most(
                NAME,
                "asleep: how often its runner did anything",
                (after.1 - before.1) as f64,
                "",
                1.0,
            )
            .note(format!("requests, timers and writes in {seconds} s, as the kernel counts its waits")),
            Row::at_most(NAME, "asleep: changes of its objects", f64::from(changes), "", 0.0)
                .note(format!("machine, pod and secrets, in {seconds} s")),
        ])
    }

    /// A packet during a suspension, at different moments.
    async fn cancels(&mut self, slept: &Slept) -> anyhow::Result<Row> {
        let whole = quantile(&mut slept.stored.clone(), 0.5);
        let (mut took, mut late) = (Vec::new(), 0);
        for round in 0..FULL_ROUNDS {
            let mut watch = Watch::open(&self.client).await?;
            self.request().await?;
            let stores = |machine: &VirtualMachine| shown(machine, "Suspended").contains("being stored");
            watch.machine(self.name, "stored", stores).await?;
            tokio::time::sleep(Duration::from_secs_f64(whole / 1e3 * round as f64 / FULL_ROUNDS as f64))
                .await;
            took.push(self.answers().await?);
            self.runs().await?;
            tokio::time::sleep(REST).await;
            let now = cluster::typed(&machines(&self.client).get(self.name).await?)?;
            late += usize::from(shown(&now, "Suspended").contains("woken"));
        }
        let slowest = quantile(&mut took, 1.0);
        let all: Vec<String> = took.iter().map(|took| format!("{took:.0}")).collect();
        Ok(Row::at_most(NAME, "packet during a suspension → guest's answer", slowest, "ms", CANCEL).note(
            format!(
                "slowest of {FULL_ROUNDS} moments of {whole:.0} ms: {}; {late} came when it was suspended",
                all.join(" ")
            ),
        ))
    }
}

/// The message of a condition.
fn shown(machine: &VirtualMachine, kind: &str) -> String {
    let conditions = machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let found = conditions.iter().find(|condition| condition.type_ == kind);
    found.map(|condition| condition.message.clone()).unwrap_or_default()
}

/// Processor time of a process, and how often it has waited for something.
fn ran(process: u32) -> anyhow::Result<(Duration, u64)> {
    let (mut nanoseconds, mut waits) = (0, 0);
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let task = task?.path();
        let text = std::fs::read_to_string(task.join("schedstat"))?;
        nanoseconds += text.split(' ').next().context("an empty schedstat")?.parse::<u64>()?;
        let text = std::fs::read_to_string(task.join("status"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        waits += line.context("no voluntary_ctxt_switches")?.trim().parse::<u64>()?;
    }
    Ok((Duration::from_nanos(nanoseconds), waits))
}

fn wakes(slept: &Slept, bare: &Stored) -> Vec<Row> {
    let at = |samples: &[f64], share| quantile(&mut samples.to_vec(), share);
    let (open, new, beside) = (&slept.open, &slept.new, &slept.bare);
    let note = format!("data of an open connection; 1 GiB, {FILLED} MiB filled, {ROUNDS} rounds");
    let way = if bare.is_mapped { "the file is its memory" } else { "it reads a stream" };
    let ratio = at(new, 0.5) / at(beside, 0.5);
    vec![
        Row::at_most(NAME, "first packet → guest's answer, p50", at(open, 0.5), "ms", WAKE.0).note(&note),
        Row::at_most(NAME, "first packet → guest's answer, p99", at(open, 0.99), "ms", WAKE.1).note(&note),
        Row::at_most(NAME, "new connection → guest's answer, beside a bare QEMU", ratio, "×", BESIDE_BARE)
            .note(format!(
                "median {:.0} beside {:.0} ms, p99 {:.0} beside {:.0} ms, in turn; {way}",
                at(new, 0.5),
                at(beside, 0.5),
                at(new, 0.99),
                at(beside, 0.99)
            )),
    ]
}

fn more_memory(slept: &Slept, full: &Slept, size: u64) -> Row {
    let median = |slept: &Slept| quantile(&mut slept.open.clone(), 0.5);
    let (little, much) = (median(slept), median(full));
    let what = format!("first packet → guest's answer, {size} MiB filled beside {FILLED}");
    Row::at_most(NAME, &what, much / little, "×", MORE_MEMORY)
        .note(format!("median {much:.0} beside {little:.0} ms, {FULL_ROUNDS} rounds"))
}

fn stores(slept: &Slept, full: &Slept, bare: &Stored) -> Vec<Row> {
    let median = |slept: &Slept| quantile(&mut slept.stored.clone(), 0.5);
    let (little, much) = (median(slept), median(full));
    let rate = (full.mebibytes - slept.mebibytes) / (much - little) * 1e3;
    let (bare_size, bare_took) = (bare.bytes >> 20, bare.took);
    let first = slept.stored.first().copied().unwrap_or(0.0);
    vec![
        Row::at_most(NAME, "guest stands still → QEMU has ended, 1 GiB", little, "ms", SUSPEND).note(
            format!(
                "median of {}, the first {first:.0} ms, {:.0} MiB stored; a bare QEMU stores {bare_size} MiB in {bare_took:.0} ms",
                slept.stored.len(),
                slept.mebibytes
            ),
        ),
        Row::at_least(NAME, "more memory to store", rate, "MiB/s", RATE)
            .note(format!("{:.0} MiB in {much:.0} ms", full.mebibytes)),
    ]
}
