//! Migrations between two real QEMUs on this host, by unix sockets.

mod disks;
mod post_copy;

use neonvm_test_support::{Need, need};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use neonvm_hypervisor::machine::{
    Abilities, Machine, MachineEvent, MigrationError, MigrationPhase as Phase, RequestedFeatures, Resources,
    RunState, Settings, negotiate,
};
use neonvm_hypervisor::plan::{Architecture, MachinePlan, MemoryPlan};
use neonvm_types::Bytes;
use neonvm_types::runner_protocol::Compression;
use tokio::sync::broadcast::Receiver;

use crate::cpu::{plan_to_plug, takes};
use crate::lab::{Console, Lab, PATIENCE, event, lab, lab_of_debian_13, resources, until};
use crate::walker::{self, RUN, STROLL, Walk};

/// As fast as it goes.
fn settings() -> Settings {
    let capabilities = ["events", "return-path", "pause-before-switchover"];
    Settings {
        capabilities: capabilities.iter().map(|&name| name.to_owned()).collect(),
        bandwidth: Bytes::gib(4),
        downtime_limit_ms: 300,
        channels: 1,
        compression: Compression::None,
    }
}

/// For guests that run an operating system. Emulated machines miss some of their writes after the first pass
/// ([`Machine::sees_all_writes`]); the walker forgets its translations itself.
fn one_pass() -> Settings {
    Settings { downtime_limit_ms: 0, ..settings() }
}

fn with(names: &[&str]) -> Settings {
    let mut settings = settings();
    settings.capabilities.extend(names.iter().map(|&name| name.to_owned()));
    settings
}

/// A VM, its console, and its events.
struct Side {
    machine: Machine,
    console: Console,
    events: Receiver<MachineEvent>,
    meeting: tempfile::TempDir,
    /// Where the guest's program is.
    program: Option<Arc<tempfile::TempDir>>,
}

impl Side {
    async fn start(mut plan: MachinePlan) -> Self {
        let meeting = tempfile::tempdir().unwrap();
        let resources = Resources { meeting: Some(meeting.path().to_owned()), ..resources().await };
        plan.machine_type = resources.installation.machine_type();
        let incoming = plan.incoming;
        let machine = Machine::start(plan, resources).await.unwrap();
        let (console, events) = (Console::follow(&machine), machine.events());
        if !incoming {
            machine.continue_().await.unwrap();
        }
        Self { machine, console, events, meeting, program: None }
    }

    /// An equal of this machine that waits for it.
    async fn target(&self) -> Self {
        let plan = MachinePlan { incoming: true, ..self.machine.plan().clone() };
        Self { program: self.program.clone(), ..Self::start(plan).await }
    }

    /// What QEMU connects to here is what the other's listens on.
    fn join(&self, name: &str, other: &Self, theirs: &str) {
        let link = self.meeting.path().join(name);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(other.meeting.path().join(theirs), link).unwrap();
    }

    /// Waits for a phase. Another end of the migration fails the test at once.
    async fn phase(&mut self, wanted: Phase) {
        self.reach(&wanted).await.unwrap_or_else(|problem| panic!("{problem}"));
    }

    /// Waits for a phase; an error if the migration ended otherwise, or does not get there.
    async fn reach(&mut self, wanted: &Phase) -> Result<(), String> {
        let events = &mut self.events;
        let waiting = async {
            loop {
                match events.recv().await {
                    Ok(MachineEvent::Migration(phase)) if phase == *wanted => return true,
                    Ok(MachineEvent::Migration(phase)) if phase.is_over() => return false,
                    Ok(_) => {}
                    Err(_) => return false,
                }
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await == Ok(true) {
            return Ok(());
        }
        let info = self.machine.migration().await;
        let exit = self.machine.wait_for(Duration::from_secs(5)).await;
        Err(format!("{wanted:?} did not happen: {info:?}, exit of QEMU: {exit:?}"))
    }

    /// Cancels the migration; returns its end. A cancel that coincides with a failure is a failure.
    async fn cancel(&mut self) -> Phase {
        self.machine.cancel_migration().await.unwrap();
        let mut end = Phase::None;
        until("an end", async || {
            end = self.machine.migration().await.unwrap().phase;
            end.is_over()
        })
        .await;
        self.events = self.machine.events();
        end
    }

    /// Laps that the walker has made here; none of its pages was wrong.
    fn laps(&self, what: &str) -> usize {
        let text = self.console.text();
        let side = if self.machine.plan().incoming { "a target" } else { "the source" };
        assert!(!text.contains('X'), "{what}: memory is damaged at {side}");
        text.matches('.').count()
    }

    /// Lets the guest run after a migration that failed or was cancelled, as the runner does: QEMU lets it continue by itself, but
    /// not always when the end coincides with the switch-over.
    async fn goes_on(&self) {
        until("a guest that runs", async || match self.machine.status().await.unwrap() {
            RunState::Running => true,
            _ => {
                // Refused as long as QEMU is busy with the end.
                let _ = self.machine.continue_().await;
                false
            }
        })
        .await;
    }

    async fn walks_on(&self, what: &str) {
        let seen = self.laps(what);
        // More than one: each reads all that the one before has left.
        until(what, async || self.laps(what) >= seen + 3).await;
    }
}

pub(crate) fn plan_of_walker(directory: &tempfile::TempDir, walk: Walk) -> Need<MachinePlan> {
    let lab = lab()?;
    let kernel = walker::write(directory.path(), walk);
    let firmware = neonvm_hypervisor::machine::firmware(&kernel, Architecture::Amd64).unwrap();
    let size = Bytes::mib(96);
    let memory = MemoryPlan { min: size, start: size, max: size, exact: false };
    Ok(MachinePlan { kernel, initramfs: None, firmware, memory, command_line: String::new(), ..lab.plan("") })
}

async fn walker(walk: Walk) -> Need<Side> {
    let directory = tempfile::tempdir().unwrap();
    let side = Side::start(plan_of_walker(&directory, walk)?).await;
    let side = Side { program: Some(Arc::new(directory)), ..side };
    side.walks_on("the first laps").await;
    Ok(side)
}

/// Sets both up and begins.
async fn begin(source: &Side, target: &Side, settings: &Settings) {
    target.machine.set_migration(settings).await.unwrap();
    source.machine.set_migration(settings).await.unwrap();
    target.machine.receive_memory("incoming").await.unwrap();
    source.join("memory", target, "incoming");
    source.machine.send_memory("memory").await.unwrap();
}

/// From the pause on.
async fn switch(source: &mut Side, target: &mut Side) {
    let (sent, received) = try_switch(source, target).await;
    assert!(sent.is_ok() && received.is_ok(), "source: {sent:?}\ntarget: {received:?}");
}

/// The end at both sides.
async fn try_switch(source: &mut Side, target: &mut Side) -> (Result<(), String>, Result<(), String>) {
    source.phase(Phase::PreSwitchover).await;
    source.machine.switch_over().await.unwrap();
    let ends = tokio::join!(source.reach(&Phase::Completed), target.reach(&Phase::Completed));
    if ends.1.is_ok() {
        assert_eq!(target.machine.status().await, Ok(RunState::Paused));
        assert_eq!(target.laps("before its word"), 0, "the guest waits for its word");
    }
    ends
}

async fn goes_on_at(target: &Side) {
    target.machine.continue_().await.unwrap();
    target.machine.announce().await.unwrap();
    target.walks_on("laps at the target").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_arrives_intact() {
    let mut source = need!(walker(STROLL).await);
    let mut target = source.target().await;
    begin(&source, &target, &settings()).await;
    source.phase(Phase::Setup).await;
    source.phase(Phase::Active).await;
    switch(&mut source, &mut target).await;
    goes_on_at(&target).await;
    // QEMU reports that it is complete before it has counted.
    until("QEMU's last numbers", async || source.machine.migration().await.unwrap().is_counted()).await;
    let info = source.machine.migration().await.unwrap();
    assert_eq!(info.phase, Phase::Completed);
    let progress = info.progress;
    assert!(progress.downtime_ms.is_some() && progress.passes >= 2, "{progress:?}");
    assert!(
        progress.ram_transferred >= Bytes::mib(50) && progress.ram_total >= Bytes::mib(96),
        "{progress:?}"
    );
    let laps = source.laps("after its end");
    let ended = Ok(RunState::Other("postmigrate".into()));
    until("the end at the source", async || source.machine.status().await == ended).await;
    assert_eq!(source.laps("after its end"), laps);
    // And on to a third.
    let mut third = target.target().await;
    begin(&target, &third, &settings()).await;
    switch(&mut target, &mut third).await;
    goes_on_at(&third).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_and_compression() {
    let mut source = need!(walker(RUN).await);
    let all =
        [(4, Compression::Zstd), (1, Compression::None), (4, Compression::None), (1, Compression::Zstd)];
    let mut failures = 0;
    let mut next = 0;
    while let Some(&(channels, compression)) = all.get(next) {
        let mut target = source.target().await;
        source.events = source.machine.events();
        let wanted = RequestedFeatures { channels, compression, auto_converge: true, post_copy: false };
        let (own, theirs) = (
            source.machine.migration_abilities().await.unwrap(),
            target.machine.migration_abilities().await.unwrap(),
        );
        let agreed = negotiate(&wanted, &own, &theirs).unwrap();
        assert_eq!(agreed.dropped, Vec::<String>::new());
        let settings = Settings {
            capabilities: agreed.capabilities,
            channels: agreed.channels,
            compression,
            ..settings()
        };
        begin(&source, &target, &settings).await;
        let ends = try_switch(&mut source, &mut target).await;
        if ends.0.is_err() {
            // On a busy host QEMU 7.2 fails about one migration in a thousand at the source ("Broken pipe") after the target has
            // completed it. The guest then continues where it was, and another target gets it.
            failures += 1;
            assert!(failures < 3, "{channels} {compression:?}: {ends:?}");
            source.goes_on().await;
            source.walks_on("laps after a failure").await;
            continue;
        }
        assert!(ends.1.is_ok(), "{ends:?}");
        goes_on_at(&target).await;
        source = target;
        next += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_capability_is_not_switched_on() {
    let source = need!(walker(STROLL).await);
    let settings = with(&["x-from-the-future"]);
    source.machine.set_migration(&settings).await.unwrap();
    let own = source.machine.migration_abilities().await.unwrap();
    let strange = Abilities { capabilities: BTreeSet::from(["x".to_owned()]), ..Abilities::default() };
    let wanted = RequestedFeatures {
        channels: 1,
        compression: Compression::None,
        auto_converge: false,
        post_copy: false,
    };
    assert!(negotiate(&wanted, &own, &strange).unwrap_err().contains("the target's QEMU does not know it"));
    let nowhere = Machine::start(source.machine.plan().clone(), resources().await).await.unwrap();
    assert_eq!(nowhere.send_memory("memory").await, Err(MigrationError::NoMeeting));
}

/// The bandwidth is so small that it does not end by itself.
fn slow(names: &[&str]) -> Settings {
    Settings { bandwidth: Bytes::mib(4), downtime_limit_ms: 1, ..with(names) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_is_called_off_leaves_the_guest_where_it_is() {
    let mut source = need!(walker(RUN).await);
    // While memory is copied.
    let target = source.target().await;
    begin(&source, &target, &slow(&[])).await;
    source.phase(Phase::Active).await;
    assert_ne!(source.cancel().await, Phase::Completed);
    source.walks_on("laps after the first cancel").await;
    drop(target);
    // While it is paused, and when the last of it is on its way.
    for too_late in [false, true] {
        let mut target = source.target().await;
        source.events = source.machine.events();
        begin(&source, &target, &settings()).await;
        source.phase(Phase::PreSwitchover).await;
        if too_late {
            source.machine.switch_over().await.unwrap();
        }
        let end = source.cancel().await;
        if end == Phase::Completed {
            assert!(too_late);
            target.phase(Phase::Completed).await;
            goes_on_at(&target).await;
            source = target;
        }
        source.goes_on().await;
        source.walks_on("laps after a cancel while it stood still").await;
    }
    // And then it is migrated after all.
    let mut target = source.target().await;
    // An end may be reported twice, when a failure and a cancel coincide.
    source.events = source.machine.events();
    begin(&source, &target, &settings()).await;
    switch(&mut source, &mut target).await;
    goes_on_at(&target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_dies_leaves_the_guest_where_it_is() {
    let mut source = need!(walker(STROLL).await);
    let target = source.target().await;
    source.machine.set_migration(&settings()).await.unwrap();
    source.join("memory", &target, "nothing");
    let refused = source.machine.send_memory("memory").await;
    if refused.is_ok() {
        source.phase(Phase::Failed).await;
    }
    assert!(!source.machine.migration().await.unwrap().error.is_empty());
    // In the middle of memory.
    let target = source.target().await;
    begin(&source, &target, &slow(&[])).await;
    source.phase(Phase::Active).await;
    target.machine.kill();
    source.phase(Phase::Failed).await;
    source.walks_on("laps after the death of the target").await;
    // While the guest is paused.
    let target = source.target().await;
    begin(&source, &target, &settings()).await;
    source.phase(Phase::PreSwitchover).await;
    target.machine.kill();
    target.machine.wait_for(PATIENCE).await.unwrap();
    source.machine.switch_over().await.unwrap();
    source.phase(Phase::Failed).await;
    source.walks_on("laps after the death of the second target").await;
    let mut target = source.target().await;
    begin(&source, &target, &settings()).await;
    switch(&mut source, &mut target).await;
    goes_on_at(&target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_not_its_equal_is_refused() {
    let mut source = need!(walker(STROLL).await);
    let mut plan = MachinePlan { incoming: true, ..source.machine.plan().clone() };
    let larger = Bytes::mib(128);
    plan.memory = MemoryPlan { min: larger, start: larger, max: larger, exact: false };
    let target = Side::start(plan).await;
    begin(&source, &target, &settings()).await;
    source.phase(Phase::Failed).await;
    let exit = target.machine.wait_for(PATIENCE).await.unwrap();
    assert!(exit.code == Some(1) && exit.stderr.join("; ").contains("pc.ram"), "{exit:?}");
    source.walks_on("laps at the source").await;
    // Fewer CPUs: detected by the first byte of the second one's state.
    let mut plan = source.machine.plan().clone();
    plan.cpu.max = 2;
    let mut source = Side { program: source.program.clone(), ..Side::start(plan).await };
    source.walks_on("the first laps").await;
    let mut plan = MachinePlan { incoming: true, ..source.machine.plan().clone() };
    plan.cpu.max = 1;
    let target = Side::start(plan).await;
    begin(&source, &target, &settings()).await;
    source.phase(Phase::PreSwitchover).await;
    source.machine.switch_over().await.unwrap();
    source.phase(Phase::Failed).await;
    let exit = target.machine.wait_for(PATIENCE).await.unwrap();
    assert!(exit.stderr.join("; ").contains("cpu"), "{exit:?}");
    source.walks_on("laps at the source").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_is_too_fast_is_slowed_down() {
    let mut source = need!(walker(RUN).await);
    let target = source.target().await;
    begin(&source, &target, &Settings { bandwidth: Bytes::mib(40), ..slow(&["auto-converge"]) }).await;
    source.phase(Phase::Active).await;
    until("a throttle", async || source.machine.migration().await.unwrap().progress.throttle_percent > 0)
        .await;
    assert_ne!(source.cancel().await, Phase::Completed);
    source.walks_on("laps").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_was_added_moves_and_can_go_afterwards() {
    let lab = need!(lab());
    let mut plan = lab.plan("wait");
    plan.memory =
        MemoryPlan { min: Bytes::mib(192), start: Bytes::mib(192), max: Bytes::mib(704), exact: false };
    let mut source = Side::start(plan).await;
    source.console.ready().await;
    source.machine.set_memory_target(Bytes::mib(512)).await.unwrap();
    until("memory", async || source.machine.memory().await.unwrap().total() == Bytes::mib(512)).await;
    let mut target = source.target().await;
    begin(&source, &target, &one_pass()).await;
    switch(&mut source, &mut target).await;
    drop(source);
    target.machine.continue_().await.unwrap();
    let memory = target.machine.memory().await.unwrap();
    assert!(memory.is_settled() && memory.total() == Bytes::mib(512), "{memory:?}");
    target.machine.set_memory_target(Bytes::mib(256)).await.unwrap();
    until("less memory", async || target.machine.memory().await.unwrap().total() == Bytes::mib(256)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plugged_cpus_move_and_more_can_come_afterwards() {
    plugged_cpus_move(need!(lab())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plugged_cpus_move_with_the_kernel_of_debian_13() {
    plugged_cpus_move(&need!(lab_of_debian_13())).await;
}

async fn plugged_cpus_move(lab: &Lab) {
    let mut source = Side::start(plan_to_plug(lab)).await;
    source.console.ready().await;
    source.machine.set_cpus(2).await.unwrap();
    takes(&mut source.console, 2, "0-1").await;
    let mut target = source.target().await;
    target.machine.set_cpus(2).await.unwrap();
    begin(&source, &target, &one_pass()).await;
    switch(&mut source, &mut target).await;
    drop(source);
    target.machine.continue_().await.unwrap();
    takes(&mut target.console, 2, "0-1").await;
    target.machine.set_cpus(4).await.unwrap();
    takes(&mut target.console, 4, "0-3").await;
}
