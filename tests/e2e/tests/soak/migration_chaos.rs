//! A VM is migrated again and again while everything around it is killed at random points of the migration. After each round it
//! runs on exactly one node, its migration has ended with a reason, and nothing is left of it. It is the same boot, unless the
//! process was killed that ran the guest: then it was restarted, and its status has the reason. Its volume, which is copied each time, has
//! every row that was acknowledged.

use std::path::Path;

use neonvm_e2e::client::Resource;
use neonvm_e2e::is_alive;
use neonvm_test_support::need;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::chaos::Random;
use crate::cluster::{Cluster, kill, possible, processes_that, processes_with, read, until};
use crate::observe::{is_over, migration, node, recall, remember, settles_after, text};

/// Rounds of a run; `NEONVM_MOVE_ROUNDS` asks for more.
const ROUNDS: u64 = 8;
/// Memory of the guest that a migration has transferred at most when something is killed: some of it is still to come.
const MOST_TRANSFERRED: u64 = 64 << 20;

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// May be killed without harm to the VM.
    Service(&'static str),
    SourceRunner,
    SourceQemu,
    TargetRunner,
    TargetQemu,
    /// Deleted by force.
    TargetPod,
}

const VICTIMS: [Victim; 12] = [
    Victim::Service("apiserver"),
    Victim::Service("vm-controller"),
    Victim::Service("scheduler"),
    Victim::Service("node-n1"),
    Victim::Service("node-n2"),
    Victim::Service("agent-n1"),
    Victim::Service("agent-n2"),
    Victim::SourceRunner,
    Victim::SourceQemu,
    Victim::TargetRunner,
    Victim::TargetQemu,
    Victim::TargetPod,
];

/// The point of a migration at which something is killed.
#[derive(Clone, Copy, Debug)]
enum Point {
    Created,
    /// The target pod is created.
    Prepared,
    /// So many bytes are transferred.
    Transferred(u64),
}

impl Point {
    fn choose(random: &mut Random) -> Self {
        match random.below(4) {
            0 => Self::Created,
            1 => Self::Prepared,
            _ => Self::Transferred(random.below(MOST_TRANSFERRED)),
        }
    }

    fn is_reached(self, migration: &Value) -> bool {
        let transferred = migration.pointer("/status/info/ram/transferred").and_then(Value::as_u64);
        is_over(migration)
            || match self {
                Self::Created => true,
                Self::Prepared => !text(migration, "/status/targetPodName").is_empty(),
                Self::Transferred(bytes) => transferred >= Some(bytes.max(1)),
            }
    }
}

pub(crate) fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn create_vm(cluster: &Cluster) -> String {
    cluster.run("m", &["--disk", "data=64Mi:/data", "--volume", "rows=96Mi:/rows"]);
    remember(cluster, "m")
}

/// Writes the row of a round to the VM's volume, which one node at a time can mount, and begins to write more beside it.
fn write_row(cluster: &Cluster, number: u64) {
    let more =
        "while :; do dd if=/dev/urandom of=/rows/more bs=64k count=16 conv=notrunc,fsync; sleep 0.1; done";
    let row = format!("echo {number} >> /rows/list && sync && (({more}) </dev/null >/dev/null 2>&1 &)");
    cluster.succeeds(|| cluster.neonctl(&["vm", "ssh", "m", "--", &row]));
}

/// Every row that was acknowledged is there, and one claim, which has them.
fn check_rows(cluster: &Cluster, rounds: u64, context: &str) {
    let wanted: String = (0..rounds).map(|number| format!("{number}\n")).collect();
    assert_eq!(cluster.inside("m", "cat /rows/list"), wanted, "{context}");
    let used = || text(&cluster.vm("m"), "/status/volumes/0/claimName").to_owned();
    let names = || {
        cluster
            .list(Resource::CLAIM)
            .iter()
            .map(|one| text(one, "/metadata/name").to_owned())
            .collect::<Vec<_>>()
    };
    until(
        || names() == [used()],
        || format!("{context}: {:?}, used: {}\n{}", names(), used(), cluster.logs()),
    );
}

/// A migration that is slow enough to be disturbed.
fn start(cluster: &Cluster, name: &str) {
    let object = json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachineMigration",
        "metadata": { "name": name }, "spec": { "vmName": "m", "maxBandwidth": "48Mi", "completionTimeout": 120 } });
    let created = || match cluster.client().create(&object) {
        Ok(_) => true,
        Err(error) => error.is(409),
    };
    until(created, || cluster.logs());
}

/// Waits for a state of a migration; the API server may be away for a moment.
fn reaches(cluster: &Cluster, name: &str, is: impl Fn(&Value) -> bool) -> Value {
    let last = std::cell::RefCell::new(Value::Null);
    let reached = || {
        let Ok(found) = cluster.client().get(Resource::MIGRATION, name) else { return false };
        *last.borrow_mut() = found;
        is(&last.borrow())
    };
    until(reached, || format!("{name}: {}\n{}", last.borrow()["status"], cluster.logs()));
    last.into_inner()
}

/// Kills a victim of a migration from a node to the other one. Whether it was there.
fn kill_victim(cluster: &Cluster, victim: Victim, from: &str, name: &str) -> bool {
    let to = if from == "n1" { "n2" } else { "n1" };
    let qemus =
        |node: &str| -> Vec<i32> { runners_on(cluster, node).into_iter().flat_map(qemus_of).collect() };
    let processes = match victim {
        Victim::Service(service) => cluster.service(service).into_iter().collect(),
        Victim::SourceRunner => runners_on(cluster, from),
        Victim::TargetRunner => runners_on(cluster, to),
        Victim::SourceQemu => qemus(from),
        Victim::TargetQemu => qemus(to),
        Victim::TargetPod => {
            let pod = text(&migration(cluster, name), "/status/targetPodName").to_owned();
            return !pod.is_empty() && cluster.client().delete(Resource::POD, &pod, Some(0)).is_ok();
        }
    };
    // A runner takes its QEMU along.
    let all: Vec<i32> = processes.iter().flat_map(|&pid| [vec![pid], qemus_of(pid)].concat()).collect();
    processes.iter().for_each(|&pid| kill(pid, Signal::KILL));
    if let Victim::Service(service) = victim {
        until(|| cluster.service(service).is_some_and(|now| !processes.contains(&now)), || cluster.logs());
    } else {
        until(|| !all.iter().any(is_alive), || format!("{victim:?} outlives its death: {all:?}"));
    }
    !processes.is_empty()
}

fn runners_on(cluster: &Cluster, node: &str) -> Vec<i32> {
    processes_with(" runner", &format!("{}/", cluster.directory().join("nodes").join(node).display()))
}

/// QEMUs that a runner started.
fn qemus_of(runner: i32) -> Vec<i32> {
    processes_that(|process: &Path| {
        let stat = read(process, "stat");
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        parent == Some(&runner.to_string()) && read(process, "cmdline").contains("qemu-system")
    })
}

/// What a round found.
struct Round {
    victim: Victim,
    /// Whether the victim was there.
    hit: bool,
    from: String,
    phase: String,
}

/// Whether the VM was restarted, and that it was only if it may be.
fn judge(cluster: &Cluster, round: &Round, before: &str) -> bool {
    let context = format!("{:?} (hit: {}), from {}: {}", round.victim, round.hit, round.from, round.phase);
    let of_vm = !matches!(round.victim, Victim::Service(_));
    let lost_its_guest = matches!(round.victim, Victim::SourceRunner | Victim::SourceQemu)
        && round.hit
        && round.phase == "Failed";
    let most = u64::from(of_vm && round.hit);
    // One that lost its guest must be restarted.
    let is_final = |restarts: u64| restarts > 0 || !lost_its_guest;
    let count = settles_after(cluster, "m", is_final);
    let vm = cluster.vm("m");
    assert!(count <= most, "{context}: {}", vm["status"]);
    cluster.succeeds(|| cluster.neonctl(&["vm", "ssh", "m", "--", "true"]));
    if count == 1 {
        let reason = text(&vm, "/status/lastExit/reason");
        let known = ["QemuEnded", "RunnerKilled", "MigrationFailed", "StoppedByForce"];
        assert!(known.contains(&reason), "{context}: {}", vm["status"]);
        return true;
    }
    let now = node(cluster, "m");
    assert_eq!(now != round.from, round.phase == "Succeeded", "{context}, to {now}");
    assert_eq!(recall(cluster, "m"), before, "{context}");
    false
}

/// Deletes a migration; the API server may be away for a moment.
fn forget(cluster: &Cluster, name: &str) {
    let gone = || cluster.client().delete(Resource::MIGRATION, name, None).is_err_and(|error| error.is(404));
    until(gone, || cluster.logs());
}

#[test]
fn migrations_survive_the_death_of_everything_around_them() {
    need!(possible());
    let seed = setting("NEONVM_MOVE_SEED", 7);
    let rounds = setting("NEONVM_MOVE_ROUNDS", ROUNDS);
    println!("seed {seed}, {rounds} rounds; again: NEONVM_MOVE_SEED={seed} NEONVM_MOVE_ROUNDS={rounds}");
    let mut random = Random(seed);
    let cluster = Cluster::with(&["--nodes", "2"]);
    cluster.idle();
    let mut before = create_vm(&cluster);
    let (mut harmless, mut succeeded) = (0, 0);
    for number in 0..rounds {
        let from = node(&cluster, "m");
        let name = format!("round-{number}");
        let victim = VICTIMS[usize::try_from(random.below(VICTIMS.len() as u64)).unwrap()];
        let point = Point::choose(&mut random);
        write_row(&cluster, number);
        start(&cluster, &name);
        reaches(&cluster, &name, |migration| point.is_reached(migration));
        let hit = kill_victim(&cluster, victim, &from, &name);
        let ended = reaches(&cluster, &name, is_over);
        assert!(!text(&ended, "/status/reason").is_empty(), "{ended}");
        let round = Round { victim, hit, from, phase: text(&ended, "/status/phase").to_owned() };
        println!("round {number}: {victim:?} at {point:?}, hit: {hit}: {}", ended["status"]["reason"]);
        if matches!(victim, Victim::Service(_)) {
            harmless += 1;
            succeeded += u64::from(round.phase == "Succeeded");
        }
        if judge(&cluster, &round, &before) {
            // A VM that ends again and again has to wait longer each time; a new one has no history.
            cluster.good(&["vm", "delete", "m", "--timeout", "170s"]);
            before = create_vm(&cluster);
        }
        check_rows(&cluster, number + 1, &format!("round {number}, {victim:?}"));
        forget(&cluster, &name);
    }
    assert!(succeeded * 2 >= harmless, "only {succeeded} of {harmless} migrations succeeded");
    cluster.down();
}
