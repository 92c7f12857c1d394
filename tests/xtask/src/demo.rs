//! `xtask demo`: the main job from nothing to a machine that changes its size under load. Each command is shown before it
//! runs, with the time since the start. What is slow to make and always the same is kept in `target/demo`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::process::{is_root, run_cargo};

/// Where the database's programs are in its root directory.
const POSTGRES: &str = "/usr/lib/postgresql/15/bin";
/// Seconds of load.
const LOAD: &str = "24";

/// The stage of the demonstration.
struct Stage {
    root: PathBuf,
    /// Kept between runs: kernel, image, root directory of the database.
    kept: PathBuf,
    path: std::ffi::OsString,
    begun: Instant,
}

impl Stage {
    fn new(root: &Path) -> anyhow::Result<Self> {
        let kept = root.join("target/demo");
        std::fs::create_dir_all(&kept)?;
        let mut path = vec![root.join("target/release")];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        path.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
        let path = std::env::join_paths(path)?;
        Ok(Self { root: root.to_owned(), kept, path, begun: Instant::now() })
    }

    fn title(&self, text: &str) {
        println!("\n[{:5.1}s] {text}", self.begun.elapsed().as_secs_f64());
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.root).env("PATH", &self.path);
        command.env("XDG_DATA_HOME", self.kept.join("data")).env("XDG_CACHE_HOME", self.kept.join("cache"));
        command.env("XDG_STATE_HOME", self.kept.join("state")).env("KUBECONFIG", self.kubeconfig());
        command
    }

    fn kubeconfig(&self) -> PathBuf {
        self.kept.join("state/neonctl/local/demo/kubeconfig")
    }

    fn show(&self, program: &str, arguments: &[&str]) {
        let quoted =
            |word: &&str| if word.contains([' ', ';']) { format!("'{word}'") } else { (*word).to_owned() };
        let words: Vec<String> = arguments.iter().map(quoted).collect();
        println!("[{:5.1}s] $ {program} {}", self.begun.elapsed().as_secs_f64(), words.join(" "));
    }

    fn step(&self, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
        self.show(program, arguments);
        let status = self.command(program, arguments).status();
        let status = status.with_context(|| format!("cannot run {program}"))?;
        ensure!(status.success(), "{program} {}: {status}", arguments.join(" "));
        Ok(())
    }

    fn neonctl(&self, arguments: &[&str]) -> anyhow::Result<()> {
        self.step("neonctl", arguments)
    }

    fn output(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.command(program, arguments).output()?;
        ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// A program of the database from its root directory, so that nothing has to be installed for it.
    fn database_client(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("chroot");
        command.arg(self.kept.join("postgres-root")).arg(format!("{POSTGRES}/{program}")).args(arguments);
        command.env("PATH", &self.path).env("LC_ALL", "C.UTF-8");
        command
    }
}

/// Runs the demonstration; true if every step succeeded. With `keep` the machine goes on living.
pub(crate) fn run(root: &Path, keep: bool) -> anyhow::Result<bool> {
    if !is_root() {
        println!(
            "the demonstration makes network namespaces and a Debian root directory: run it as root: sudo env \"PATH=$PATH\" \"HOME=$HOME\" make demo"
        );
        return Ok(false);
    }
    let stage = Stage::new(root)?;
    stage.title("Build neonctl, neond and the guest program");
    let programs = ["build", "--release", "--locked", "--quiet", "-p", "neonvm-cli", "-p", "neonvm-neond"];
    ensure!(crate::guest::run(root)? && run_cargo(root, &programs)?, "the programs do not build");
    let played = play(&stage);
    if let Err(error) = &played {
        println!("\nthe demonstration stopped: {error:#}");
    }
    if keep && played.is_ok() {
        farewell(&stage);
        return Ok(true);
    }
    stage.title("Clean up");
    // Whatever went wrong before, nothing stays behind.
    let gone = stage.neonctl(&["local", "down", "--name", "demo", "--delete"]);
    if let Err(error) = &gone {
        println!("{error:#}");
    }
    println!("\n[{:5.1}s] done", stage.begun.elapsed().as_secs_f64());
    Ok(played.is_ok() && gone.is_ok())
}

/// Removes what a demonstration left that was broken off.
pub(crate) fn clean_up(root: &Path) -> anyhow::Result<bool> {
    let stage = Stage::new(root)?;
    println!();
    Ok(stage.neonctl(&["local", "down", "--name", "demo", "--delete"]).is_ok())
}

fn play(stage: &Stage) -> anyhow::Result<()> {
    stage.title("A cluster on this machine");
    // A run that was broken off may have left one.
    let _ = stage.command("neonctl", &["local", "down", "--name", "demo", "--delete"]).output();
    stage.neonctl(&["local", "up", "--name", "demo"])?;
    prepare(stage)?;
    stage.title("A virtual machine with PostgreSQL: half a CPU to two, 512Mi to 2Gi");
    stage.neonctl(&[
        "vm",
        "create",
        "pg",
        "--image",
        "demo/postgres:15",
        "--cpu",
        "0.5..2",
        "--start-cpu",
        "1",
        "--memory",
        "512Mi..2Gi",
        // Its size is shown by hand here.
        "--no-autoscale",
        "--port",
        "5432",
        "--wait",
    ])?;
    stage.neonctl(&["vm", "list", "-o", "wide"])?;
    let address = stage.output("neonctl", &["vm", "get", "pg", "-o", "jsonpath={.status.podIP}"])?;
    load(stage, &address)?;
    stage.title("What the cluster knows about it");
    stage.neonctl(&["vm", "describe", "pg"])?;
    stage.neonctl(&["vm", "events", "pg"])?;
    stage.neonctl(&["vm", "ssh", "pg", "--", "uname -r; nproc; free -m | head -2"])?;
    stage.neonctl(&["status"])
}

/// The kernel and the image, if they are not kept from an earlier run.
fn prepare(stage: &Stage) -> anyhow::Result<()> {
    if !stage.kept.join("data/neonvm/kernels/default/vmlinux").exists() {
        stage.title("A kernel");
        stage.neonctl(&["kernel", "fetch"])?;
    }
    let tree = stage.kept.join("postgres-root");
    if !tree.exists() {
        stage.title("Debian with PostgreSQL, as a directory (a container image would do as well)");
        let making = stage.kept.join("postgres-root.making");
        let _ = std::fs::remove_dir_all(&making);
        let making = making.display().to_string();
        stage.show("examples/postgres/make-root.sh", &[&making]);
        let log = stage.kept.join("make-root.log");
        let file = std::fs::File::create(&log)?;
        let script = stage.root.join("examples/postgres/make-root.sh");
        let status = Command::new(script).arg(&making).stdout(file.try_clone()?).stderr(file).status()?;
        ensure!(status.success(), "debootstrap failed; see {}", log.display());
        std::fs::rename(&making, &tree)?;
    }
    stage.title("Its disk");
    let tree = tree.display().to_string();
    let config = "config_file=/etc/postgresql/15/main/postgresql.conf";
    let server = format!("{POSTGRES}/postgres");
    stage.neonctl(&[
        "vm",
        "build",
        "--from",
        &tree,
        "-f",
        "examples/postgres/image.yaml",
        "-t",
        "demo/postgres:15",
        "--size",
        "4Gi",
        "--user",
        "postgres",
        "--stop-signal",
        "SIGINT",
        "--",
        &server,
        "-D",
        "/var/lib/postgresql/15/main",
        "-c",
        config,
    ])
}

/// pgbench while the size changes by hand: not one transaction fails, not one connection is lost.
fn load(stage: &Stage, address: &str) -> anyhow::Result<()> {
    stage.title("Tables for pgbench");
    let until = Instant::now() + Duration::from_secs(60);
    let target = ["-h", address, "-U", "postgres"];
    while !stage.database_client("pg_isready", &["-q", "-h", address]).status()?.success() {
        ensure!(Instant::now() < until, "PostgreSQL does not answer at {address}:5432");
        std::thread::sleep(Duration::from_millis(100));
    }
    let fill = [&target[..], &["-i", "-q", "-s", "2", "postgres"]].concat();
    stage.show("pgbench", &fill);
    let filled = stage.database_client("pgbench", &fill).stderr(Stdio::null()).status()?;
    ensure!(filled.success(), "pgbench cannot make its tables");
    stage.title("Load, and the size changes while it runs");
    let arguments = [&target[..], &["-n", "-c", "4", "-T", LOAD, "-P", "3", "postgres"]].concat();
    stage.show("pgbench", &arguments);
    let mut bench =
        stage.database_client("pgbench", &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let printer = print_progress(&mut bench);
    let changed = changes(stage);
    let status = bench.wait()?;
    let said = printer.map(|thread| thread.join().unwrap_or_default()).unwrap_or_default();
    for line in said
        .lines()
        .filter(|line| ["tps", "failed", "processed", "latency average"].iter().any(|w| line.contains(w)))
    {
        println!("         pgbench: {line}");
    }
    changed?;
    ensure!(status.success(), "pgbench failed: {status}");
    ensure!(said.contains("number of failed transactions: 0"), "pgbench lost transactions");
    Ok(())
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

fn changes(stage: &Stage) -> anyhow::Result<()> {
    for (cpu, memory) in [("2", "2Gi"), ("0.5", "512Mi"), ("1.5", "1Gi")] {
        std::thread::sleep(Duration::from_secs(5));
        stage.neonctl(&["vm", "scale", "pg", "--cpu", cpu, "--memory", memory, "--wait"])?;
    }
    stage.neonctl(&["top", "vms", "--once"])
}

fn farewell(stage: &Stage) {
    let directory = stage.root.join("target/release").display().to_string();
    println!("\nThe cluster and its machine live on. To go on:\n");
    println!("  export PATH={directory}:$PATH KUBECONFIG={}", stage.kubeconfig().display());
    for variable in ["DATA", "CACHE", "STATE"] {
        println!("  export XDG_{variable}_HOME={}", stage.kept.join(variable.to_lowercase()).display());
    }
    println!("  neonctl vm ssh pg                      log in");
    println!("  neonctl vm console pg                  its serial console; leave with Ctrl-]");
    println!("  neonctl vm scale pg --cpu 2 --wait     change its size");
    println!("  neonctl vm logs pg -f                  what it writes");
    println!("  neonctl top vms                        what it uses");
    println!("  kubectl get neonvm -o wide             the same with kubectl");
    println!("  neonctl local down --name demo --delete   the end");
}
