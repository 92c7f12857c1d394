//! Root in a guest: a disk whose only program answers its runner and its agent with nonsense, sends packets that it may not send, and
//! floods its console and the ports for logs and reports.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use neonvm_e2e::client::Resource;
use neonvm_e2e::fuzz::{Round, rounds};
use neonvm_test_support::{Need, eventually_blocking, eventually_blocking_within, need, needs};

use super::health::{Health, logs};
use crate::cluster::Cluster;
use crate::home::Home;

/// Answers after which a round has seen enough.
const MOST_ANSWERS: u64 = 40;
/// Time for a round, on a host that has much else to do.
const ROUND: Duration = Duration::from_secs(600);
/// The most memory of a runner, in KiB, and of all that a cluster keeps of logs, in bytes.
const MOST: u64 = 96 << 10;
const LOGS: u64 = 96 << 20;

/// Builds the disk of a round.
fn build(cluster: &Cluster, seed: u64) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adversary/fuzz/hostile.c");
    let root = cluster.home().path().join("root");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    let program = cluster.home().path().join("hostile");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-static", "-s", &format!("-DSEED={seed}ULL"), "-o"]).arg(&program).arg(source);
    assert!(cc.status().unwrap().success());
    let image = format!("hostile-{seed}:1");
    let (root, program) = (root.display(), program.display());
    cluster
        .home()
        .good(&format!("vm build --from {root} --owner root --guest {program} -t {image} -- /bin/none"));
    image
}

/// The counts that the guest reports: answers, packets and writes.
fn done(directory: &Path) -> Option<[u64; 3]> {
    let texts = logs(directory).into_iter().map(|path| std::fs::read(path).unwrap_or_default());
    let of = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        let counts = text.rsplit_once("hostile: ")?.1.split_once(" writes.")?.0.replace(" answers, ", " ");
        let mut numbers = counts.split([' ', ',']).filter_map(|word| word.parse().ok());
        Some([numbers.next()?, numbers.next()?, numbers.next()?])
    };
    texts.filter_map(|text| of(&text)).max()
}

fn round(cluster: &Cluster, round: &Round) -> [u64; 3] {
    let line = format!("guest {} {}", round.seed, round.cases);
    let image = build(cluster, round.seed);
    let made =
        cluster.neonctl(&format!("vm create hostile --image {image} --cpu 1..2 --memory 256Mi..512Mi"));
    assert!(made.status.success(), "{line} # {}", String::from_utf8_lossy(&made.stderr));
    let runners = || -> Vec<_> {
        let all = cluster.processes().into_iter();
        all.filter(|one| one.role == "runner" || one.role.starts_with("qemu-system")).collect()
    };
    // An agent asks every few seconds.
    let wanted = u64::try_from(round.cases).unwrap().min(MOST_ANSWERS);
    let directory = cluster.directory();
    // The logs of the VM of an earlier round are gone with it.
    let before = eventually_blocking(
        || format!("{line} # the guest's first word"),
        || done(&directory).map(|_| runners()).filter(|runners| runners.len() >= 2),
    );
    let count = eventually_blocking_within(
        ROUND,
        || format!("{line} # so many answers; so far {:?}", done(&directory)),
        || done(&directory).filter(|count| count[0] >= wanted),
    );
    let now = runners();
    let pids = |all: &[crate::cluster::Process]| all.iter().map(|one| one.pid).collect::<Vec<_>>();
    assert_eq!(pids(&before), pids(&now), "{line} # a runner or QEMU has ended");
    for runner in now.iter().filter(|one| one.role == "runner") {
        let peak = runner.peak_memory();
        println!(
            "guest: {count:?} answers, packets and writes; peak memory of the runner: {} MiB",
            peak >> 10
        );
        assert!(peak < MOST, "{line} # the runner took {peak} KiB");
    }
    let sizes = logs(&directory).into_iter().filter_map(|path| std::fs::metadata(path).ok());
    let bytes: u64 = sizes.map(|one| one.len()).sum();
    println!("guest: {} KiB of logs", bytes >> 10);
    assert!(bytes < LOGS, "{line} # {bytes} bytes of logs");
    let vm = cluster.client().get(Resource::VM, "hostile").unwrap();
    assert_eq!(vm["status"]["restartCount"].as_u64().unwrap_or(0), 0, "{line}");
    cluster.client().delete(Resource::VM, "hostile", Some(0)).unwrap();
    eventually_blocking(
        || format!("{line} # the VM is gone"),
        || cluster.client().get(Resource::VM, "hostile").is_err_and(|error| error.is(404)),
    );
    count
}

/// What a cluster with guests needs.
fn kernel() -> Need<PathBuf> {
    needs::network_namespaces()?;
    needs::qemu()?;
    needs::program("cc")?;
    needs::kernel()
}

#[test]
fn a_guest_gains_breaks_or_fills_nothing() {
    let kernel: PathBuf = need!(kernel());
    let cluster = Cluster::in_home(Home::with_kernel(&kernel), 1);
    let mut health = Health::from_cluster(&cluster, "guest");
    for next in rounds("guest") {
        let count = round(&cluster, &next);
        health.check(&Round { cases: usize::try_from(count.iter().sum::<u64>()).unwrap(), ..next });
    }
    health.report();
}
