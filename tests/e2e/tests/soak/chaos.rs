//! Everything is killed at random moments while VMs are created, changed and deleted. After each round the VM is as desired, there
//! were never two of it, and at the end nothing is left.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use neonvm_e2e::client::Resource;
use neonvm_test_support::need;
use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::{Cluster, is_killed, kill, possible, processes_that, read, until};

/// Rounds of a run.
const ROUNDS: u64 = 50;

/// Numbers that look random and can be had again (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Kills something after a while.
fn victim(cluster: &Cluster, random: &mut Random) -> (String, Option<i32>) {
    let services = ["apiserver", "vm-controller", "node-n1", "scheduler"];
    let pick = usize::try_from(random.below(5)).unwrap();
    match services.get(pick) {
        Some(service) => ((*service).to_owned(), cluster.service(service)),
        None => ("runner".to_owned(), cluster.processes(" runner").first().copied()),
    }
}

/// Runs a command again and again until it succeeds: the API server may be away for a moment.
fn insist(cluster: &Cluster, what: &str, arguments: &[&str], fine: &[&str]) {
    let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
    until(
        || {
            let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let output = cluster.neonctl(&words).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            output.status.success() || fine.iter().any(|fine| text.contains(fine))
        },
        || format!("{what}: {arguments:?}\n{}", cluster.logs()),
    );
}

/// One change of what is desired: CPUs and slots of 256Mi, or no VM.
fn change(
    cluster: &Cluster,
    random: &mut Random,
    wanted: &mut Option<(u64, u64)>,
    replace: bool,
) -> &'static str {
    match (*wanted, if replace { 0 } else { random.below(4) }) {
        (None, _) => {
            insist(
                cluster,
                "create",
                &[
                    "vm",
                    "create",
                    "c",
                    "--image",
                    "idle:1",
                    "--cpu",
                    "1..3",
                    "--memory",
                    "256Mi..1Gi",
                    "--no-autoscale",
                    "--grace",
                    "5s",
                    "--no-ssh",
                ],
                &["already exists"],
            );
            *wanted = Some((1, 1));
            "create"
        }
        (Some(_), 0) => {
            insist(cluster, "delete", &["vm", "delete", "c", "--no-wait"], &["not found"]);
            *wanted = None;
            "delete"
        }
        (Some(_), _) => {
            let (cpu, slots) = (1 + random.below(3), 1 + random.below(4));
            insist(
                cluster,
                "scale",
                &["vm", "scale", "c", "--cpu", &cpu.to_string(), "--memory", &format!("{}Mi", slots * 256)],
                &[],
            );
            *wanted = Some((cpu, slots));
            "scale"
        }
    }
}

/// Ends the watching also when the test fails: the scope waits for it.
struct Ending(Arc<AtomicBool>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Watches all the time that there are never two of one VM.
fn count_doubles(stop: &AtomicBool, most: &AtomicUsize) {
    while !stop.load(Ordering::Relaxed) {
        let now = all_vms();
        let worst = now.iter().map(|one| now.iter().filter(|other| *other == one).count()).max();
        most.fetch_max(worst.unwrap_or(0), Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(30));
    }
}

#[test]
fn nothing_is_lost_doubled_or_leaked_when_everything_is_killed_at_random() {
    need!(possible());
    let seed = std::env::var("NEONVM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_121);
    println!("chaos: seed {seed}, {ROUNDS} rounds");
    let mut random = Random(seed);
    // Room for every size, whatever this machine has.
    let cluster = Cluster::with(&["--nodes", "1", "--cpus", "4"]);
    cluster.idle();
    let stop = Arc::new(AtomicBool::new(false));
    let most = Arc::new(AtomicUsize::new(0));
    let mut wanted: Option<(u64, u64)> = None;
    let mut uid = String::new();
    std::thread::scope(|scope| {
        let (watch_stop, watch_most) = (Arc::clone(&stop), Arc::clone(&most));
        scope.spawn(move || count_doubles(&watch_stop, &watch_most));
        let _ending = Ending(Arc::clone(&stop));
        let mut replace = false;
        for round in 0..ROUNDS {
            let (name, pid) = victim(&cluster, &mut random);
            let pause = Duration::from_millis(random.below(1500));
            let killer = scope.spawn(move || {
                // The moment is random.
                std::thread::sleep(pause);
                if let Some(pid) = pid {
                    kill(pid, Signal::KILL);
                }
            });
            let step = change(&cluster, &mut random, &mut wanted, replace);
            killer.join().unwrap();
            println!("round {round}: {step}, {name} killed after {pause:?}");
            // A VM that ends again and again has to wait longer each time; a new one has no history.
            replace = name == "runner";
            settle(&cluster, wanted, &mut uid, round);
        }
    });
    assert_eq!(most.load(Ordering::Relaxed), 1, "the most VMs of one object at a time");
    insist(&cluster, "last delete", &["vm", "delete", "c", "--timeout", "60s"], &["not found"]);
    until(|| cluster.processes(" runner").is_empty(), || "runners are left".into());
    leaks(&cluster);
    cluster.down();
}

/// UIDs of VMs with the name of ours that QEMU runs, one for each process. Those of other tests have other names.
fn all_vms() -> Vec<String> {
    let is_it = |process: &Path| {
        let line = read(process, "cmdline");
        line.contains("qemu-system-x86_64") && line.contains("guest=default/c,") && !is_killed(process)
    };
    let uid = |pid: i32| -> Option<String> {
        let line = read(Path::new(&format!("/proc/{pid}")), "cmdline");
        line.split(' ').skip_while(|word| *word != "-uuid").nth(1).map(str::to_owned)
    };
    processes_that(is_it).into_iter().filter_map(uid).collect()
}

fn settle(cluster: &Cluster, wanted: Option<(u64, u64)>, uid: &mut String, round: u64) {
    let last = std::cell::RefCell::new(String::new());
    until(
        || {
            let vm = match cluster.client().get(Resource::VM, "c") {
                Ok(vm) => Some(vm),
                Err(error) if error.is(404) => None,
                Err(_) => return false,
            };
            *last.borrow_mut() = vm.as_ref().map_or_else(String::new, Value::to_string);
            match (wanted, vm) {
                (None, None) => uid.is_empty() || Cluster::qemus(uid).is_empty(),
                (Some((cpu, slots)), Some(vm)) => {
                    *uid = vm["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                    let memory = if slots == 4 { "1Gi".to_owned() } else { format!("{}Mi", slots * 256) };
                    vm["status"]["phase"] == "Running"
                        && vm["status"]["cpus"] == cpu
                        && vm["status"]["memorySize"] == memory
                        && Cluster::qemus(uid).len() == 1
                }
                _ => false,
            }
        },
        || format!("round {round}: wanted {wanted:?}, is {}\n{}", last.borrow(), cluster.logs()),
    );
}

/// Nothing of a pod is left once its VM is deleted.
fn leaks(cluster: &Cluster) {
    let pods = cluster.directory().join("nodes/n1/pods");
    until(
        || std::fs::read_dir(&pods).map_or(true, |entries| entries.count() == 0),
        || format!("files are left in {}", pods.display()),
    );
    cluster.is_emptied();
}
