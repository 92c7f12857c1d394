//! What is shown: a database on a volume grows under load by itself, a full node denies more, the database moves to another node
//! while it is used, an idle machine gives back, a restart keeps the rows, and a packet wakes a suspended database.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::prepare;
use super::stage::Stage;

/// Seconds of load.
const LOAD: &str = "100";

/// A program in the background that ends with its value.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn run(stage: &Stage) -> anyhow::Result<()> {
    stage.title("A cluster on this machine: two nodes that offer 2 CPUs and 7Gi each");
    // A run that was broken off may have left one.
    let _ = stage.command("neonctl", &["local", "down", "--name", "demo", "--delete"]).output();
    stage.neonctl(&["local", "up", "--name", "demo", "--nodes", "2", "--cpus", "2", "--memory", "7Gi"])?;
    prepare::all(stage)?;
    stage.title(
        "A virtual machine with PostgreSQL: a quarter of a CPU to a whole one, 1Gi to 4Gi, as it needs; its data on a volume",
    );
    create(stage, "pg", "0.25..1", "1Gi..4Gi", &["--overlay", "--volume", "data=2Gi:/var/lib/postgresql"])?;
    stage.neonctl(&["vm", "list"])?;
    let address = stage.output("neonctl", &["vm", "get", "pg", "-o", "jsonpath={.status.extraNetIP}"])?;
    tables(stage, &address)?;
    let summary = under_load(stage, &address)?;
    stage.title("Grown, moved, and not one transaction failed, not one connection was lost");
    let shown = ["tps", "failed", "processed", "latency average"];
    for line in summary.lines().filter(|line| shown.iter().any(|word| line.contains(word))) {
        println!("         pgbench: {line}");
    }
    ensure!(summary.contains("number of failed transactions: 0"), "pgbench lost transactions");
    let written = rows(stage, &address)?;
    ensure!(summary.contains(&format!("actually processed: {written}\n")), "of its rows {written} are there");
    idle_again(stage)?;
    memory(stage)?;
    restarts(stage, &address, &written)?;
    stage.title("What the cluster knows about it");
    stage.neonctl(&["vm", "describe", "pg"])?;
    stage.neonctl(&["status"])?;
    history(stage)?;
    sleeps(stage, &address, &written)
}

/// Asks the database how many transactions of pgbench are on its disk.
fn rows(stage: &Stage, address: &str) -> anyhow::Result<String> {
    let arguments = ["-h", address, "-U", "postgres", "-qAtc", "select count(*) from pgbench_history"];
    stage.show("psql", &arguments);
    let output = stage.database_client("psql", &arguments).output()?;
    ensure!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr));
    let rows = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    println!("         psql: {rows}");
    Ok(rows)
}

/// A new pod and a new boot; what pgbench wrote is there.
fn restarts(stage: &Stage, address: &str, written: &str) -> anyhow::Result<()> {
    stage.title("A restart: the volume has every row");
    stage.neonctl(&["vm", "disk", "list", "pg"])?;
    stage.neonctl(&["vm", "restart", "pg"])?;
    answers(stage, address)?;
    ensure!(rows(stage, address)? == written, "the restart lost rows");
    Ok(())
}

/// Suspended, and woken by the first packet of a client.
fn sleeps(stage: &Stage, address: &str, written: &str) -> anyhow::Result<()> {
    stage.title("To zero: its memory goes to a file, QEMU ends, and the pod requests nothing");
    stage.neonctl(&["vm", "suspend", "pg"])?;
    stage.neonctl(&["vm", "list"])?;
    stage.title("The first packet wakes it");
    let begun = Instant::now();
    ensure!(rows(stage, address)? == written, "the wake lost rows");
    println!("         answered {} ms after the connection began", begun.elapsed().as_millis());
    stage.neonctl(&["vm", "list"])
}

/// The whole run as text, and as a plot and a page to keep.
fn history(stage: &Stage) -> anyhow::Result<()> {
    stage.title("What happened to it, and why");
    stage.neonctl(&["vm", "history", "pg"])?;
    for form in ["svg", "html"] {
        let arguments = ["vm", "history", "pg", "-o", form];
        let path = stage.kept.join(format!("pg.{form}"));
        stage.show("neonctl", &[&arguments[..], &[&format!(">{}", path.display())]].concat());
        std::fs::write(&path, stage.output("neonctl", &arguments)?)?;
    }
    Ok(())
}

fn create(stage: &Stage, name: &str, cpu: &str, memory: &str, more: &[&str]) -> anyhow::Result<()> {
    let image = ["vm", "create", name, "--image", "demo/postgres:17", "--port", "5432"];
    stage.neonctl(&[&image[..], &["--cpu", cpu, "--memory", memory], more, &["--wait"]].concat())
}

fn node(stage: &Stage) -> anyhow::Result<String> {
    stage.output("neonctl", &["vm", "get", "pg", "-o", "jsonpath={.status.node}"])
}

/// Waits until the database takes connections.
fn answers(stage: &Stage, address: &str) -> anyhow::Result<()> {
    let until = Instant::now() + Duration::from_secs(60);
    while !stage.database_client("pg_isready", &["-q", "-h", address]).status()?.success() {
        ensure!(Instant::now() < until, "PostgreSQL does not answer at {address}:5432");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn tables(stage: &Stage, address: &str) -> anyhow::Result<()> {
    stage.title("Tables for pgbench");
    answers(stage, address)?;
    let fill = ["-h", address, "-U", "postgres", "-i", "-q", "-s", "2", "postgres"];
    stage.show("pgbench", &fill);
    let filled = stage.database_client("pgbench", &fill).stderr(Stdio::null()).status()?;
    ensure!(filled.success(), "pgbench cannot make its tables");
    Ok(())
}

/// pgbench, while the VM grows by itself and another one asks for more than the node has; the summary of pgbench.
fn under_load(stage: &Stage, address: &str) -> anyhow::Result<String> {
    stage.title("Load: the VM grows by itself");
    let arguments = ["-h", address, "-U", "postgres", "-n", "-c", "2", "-T", LOAD, "-P", "5", "postgres"];
    stage.show("pgbench", &arguments);
    let mut bench = Background(
        stage.database_client("pgbench", &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?,
    );
    let printer = print_progress(&mut bench.0).context("pgbench has no output")?;
    stage.neonctl(&["vm", "wait", "pg", "--for", "cpu>=1", "--timeout", "60s"])?;
    stage.neonctl(&["top", "vms"])?;
    stage.neonctl(&["agent", "inspect", "--vm", "pg"])?;
    full_node(stage)?;
    moves(stage, address)?;
    stage.title("pgbench goes on to its end");
    let status = bench.0.wait()?;
    ensure!(status.success(), "pgbench failed: {status}");
    Ok(printer.join().unwrap_or_default())
}

/// Shows pgbench's progress as it comes; returns the thread that reads its summary.
fn print_progress(bench: &mut Child) -> Option<std::thread::JoinHandle<String>> {
    let (stdout, stderr) = (bench.stdout.take()?, bench.stderr.take()?);
    std::thread::spawn(move || {
        for line in
            BufReader::new(stderr).lines().map_while(Result::ok).filter(|line| line.starts_with("progress"))
        {
            println!("         pgbench: {line}");
        }
    });
    Some(std::thread::spawn(move || std::io::read_to_string(stdout).unwrap_or_default()))
}

/// To the other node, with pgbench and a session of psql on it.
fn moves(stage: &Stage, address: &str) -> anyhow::Result<()> {
    stage.title("A session of psql, which stays open");
    let arguments = ["-h", address, "-U", "postgres", "-qAt"];
    stage.show("psql", &arguments);
    let mut psql = Background(
        stage.database_client("psql", &arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?,
    );
    let mut input = psql.0.stdin.take().context("psql has no input")?;
    let mut output = BufReader::new(psql.0.stdout.take().context("psql has no output")?);
    let mut ask = || -> anyhow::Result<String> {
        writeln!(
            input,
            "select 'backend ' || pg_backend_pid() || ', up since ' || pg_postmaster_start_time();"
        )?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        println!("         psql: {}", line.trim());
        Ok(line)
    };
    let before = ask()?;
    stage.title("The database moves to the other node: memory and disks are copied while it works");
    let from = node(stage)?;
    stage.neonctl(&["vm", "migrate", "pg", "--dry-run"])?;
    stage.neonctl(&["vm", "migrate", "pg", "--timeout", "180s"])?;
    ensure!(node(stage)? != from, "pg did not leave {from}");
    stage.title("The same session, the same database");
    ensure!(ask()? == before, "the session is another one");
    stage.neonctl(&["migration", "list"])?;
    stage.neonctl(&["migration", "describe", "pg-1"])
}

/// A second machine wants more than is left: it gets what is there, and each command shows why not more.
fn full_node(stage: &Stage) -> anyhow::Result<()> {
    stage.title("A second VM on the same node: it may grow to 6Gi, but only 2Gi are left");
    let full = node(stage)?;
    let there = format!("kubernetes.io/hostname={full}");
    create(stage, "greedy", "0.25..1.5", "1Gi..6Gi", &["--node-selector", &there])?;
    let busy = ["vm", "ssh", "greedy", "--", "while :; do :; done"];
    stage.show("neonctl", &busy);
    let busy = stage
        .command("neonctl", &busy)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let busy = Background(busy);
    stage.neonctl(&["vm", "wait", "greedy", "--for", "memory>=2Gi", "--timeout", "60s"])?;
    until_refused(stage, &full)?;
    stage.neonctl(&["agent", "inspect", "--vm", "greedy"])?;
    stage.neonctl(&["debug", "node-pressure", &full, "--what-if", "greedy=4cu"])?;
    stage.neonctl(&["vm", "delete", "greedy"])?;
    drop(busy);
    Ok(())
}

/// Waits until the scheduler has refused something.
fn until_refused(stage: &Stage, node: &str) -> anyhow::Result<()> {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let dump = stage.output("neonctl", &["debug", "node-pressure", node, "-o", "json"])?;
        let dump: serde_json::Value = serde_json::from_str(&dump)?;
        let pressure = dump.pointer("/items/0/mem/capacityPressure").and_then(serde_json::Value::as_u64);
        if pressure > Some(0) {
            return Ok(());
        }
        ensure!(Instant::now() < until, "nothing was refused: {dump}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn idle_again(stage: &Stage) -> anyhow::Result<()> {
    stage.title("Idle: it gives back what it does not need, and stays small");
    stage.neonctl(&["vm", "wait", "pg", "--for", "cpu<=0.25", "--timeout", "420s"])?;
    stage.neonctl(&["top", "vms"])?;
    // The first half minute is for what the load has left behind, such as a vacuum of its tables.
    stage.step("sleep", &["90"])?;
    stage.neonctl(&["vm", "history", "pg", "--since", "1m"])
}

fn memory(stage: &Stage) -> anyhow::Result<()> {
    stage.title("Memory: 2Gi are taken as fast as the guest can, and nothing is killed");
    let take = "mount -t tmpfs -o size=8g none /mnt && dd if=/dev/zero of=/mnt/fill bs=64M count=32 && free -m | head -2";
    stage.neonctl(&["vm", "ssh", "pg", "--", take])?;
    stage.neonctl(&["vm", "wait", "pg", "--for", "memory>=3Gi", "--timeout", "30s"])?;
    stage.neonctl(&["vm", "ssh", "pg", "--", "umount /mnt"])?;
    stage.neonctl(&["vm", "wait", "pg", "--for", "memory<=1Gi", "--timeout", "240s"])
}
