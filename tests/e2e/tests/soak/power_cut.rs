//! QEMU is killed again and again while the guest appends rows to a volume and acknowledges each one that is on it. Each time the file
//! system mounts without an error, and every acknowledged row is there.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use neonvm_e2e::is_alive;
use neonvm_test_support::need;
use rustix::process::Signal;

use crate::chaos::Random;
use crate::cluster::{Cluster, kill, possible, until};
use crate::migration_chaos::setting;

/// Rounds of a run; `NEONVM_CUT_ROUNDS` asks for more.
const ROUNDS: u64 = 4;
/// Rows that are acknowledged at most before QEMU is killed.
const MOST: u64 = 60;

/// Appends rows from a number on; each is printed when it is on the volume.
fn writer(cluster: &Cluster, from: u64) -> Child {
    let write = "printf '%07d\\n' $i | dd of=/rows/list bs=8 seek=$i conv=notrunc,fsync 2>/dev/null";
    let command = format!("i={from}; while {write}; do echo $i; i=$((i+1)); done");
    cluster.neonctl(&["vm", "ssh", "m", "--", &command]).stdout(Stdio::piped()).spawn().unwrap()
}

/// Kills QEMU after so many rows from a number on. How many are acknowledged then.
fn cut(cluster: &Cluster, from: u64, after: u64) -> u64 {
    let uid = cluster.vm("m")["metadata"]["uid"].as_str().unwrap().to_owned();
    let mut writer = writer(cluster, from);
    let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines().map_while(Result::ok);
    let number = |line: String| line.parse::<u64>().unwrap() + 1;
    let acknowledged =
        lines.by_ref().take(usize::try_from(after).unwrap()).map(number).last().unwrap_or(from);
    let qemus = Cluster::qemus(&uid);
    qemus.iter().for_each(|&pid| kill(pid, Signal::KILL));
    until(|| !qemus.iter().any(is_alive), || cluster.logs());
    // What is still on its way to the client is acknowledged as well.
    let rest = std::thread::spawn(move || lines.map(number).last());
    until(|| writer.try_wait().unwrap().is_some(), || cluster.logs());
    let acknowledged = rest.join().unwrap().unwrap_or(acknowledged);
    assert!(acknowledged >= from + after, "the guest wrote {acknowledged} of {} rows", from + after);
    acknowledged
}

#[test]
fn every_acknowledged_row_outlives_the_death_of_qemu() {
    need!(possible());
    let seed = setting("NEONVM_MOVE_SEED", 7);
    let rounds = setting("NEONVM_CUT_ROUNDS", ROUNDS);
    println!("seed {seed}, {rounds} rounds; again: NEONVM_MOVE_SEED={seed} NEONVM_CUT_ROUNDS={rounds}");
    let mut random = Random(seed);
    let cluster = Cluster::start();
    cluster.idle();
    let mut rows = 0;
    for round in 0..rounds {
        // A VM that ends again and again has to wait longer each time; a new one on the same claim has no history.
        cluster.run("m", &["--volume", "rows=96Mi:/rows"]);
        let there = cluster.inside("m", "cat /rows/list 2>/dev/null; true");
        let numbers: Vec<u64> = there.lines().map(|line| line.parse().unwrap()).collect();
        let kept = numbers.len() as u64;
        assert!(numbers.iter().copied().eq(0..kept), "round {round}: {there}");
        assert!(kept >= rows, "round {round}: {rows} rows were acknowledged, {kept} are there");
        let errors = cluster.inside("m", "dmesg | grep -i 'ext4-fs.*error'; true");
        assert_eq!(errors, "", "round {round}");
        rows = cut(&cluster, kept, 1 + random.below(MOST));
        cluster.good(&["vm", "delete", "m", "--timeout", "170s"]);
    }
    println!("{rows} rows, {rounds} power cuts, no row lost");
    cluster.down();
}
