//! A VM with PostgreSQL, and its clients.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::super::super::disk::run;
use super::super::cluster::Cluster;
use super::super::repository;

/// Name of the VM.
pub(super) const NAME: &str = "pg";
const PROGRAMS: &str = "/usr/lib/postgresql/17/bin";
/// Longest start of the database.
const START: Duration = Duration::from_secs(120);
/// Time between two queries of the monitoring client.
const MONITORING: Duration = Duration::from_secs(10);
/// Rows that a query of a load counts.
const ROWS: u32 = 2000;
/// Queries with which their CPU time is measured.
const TIMES: u32 = 300;
/// Of the guest's `/proc/stat`, per second.
const TICKS: f64 = 100.0;

/// A running database.
pub(super) struct Database {
    tree: PathBuf,
    address: String,
}

/// What a query of a load costs.
#[derive(Clone, Copy)]
pub(super) struct Work {
    /// CPU time of all that the guest does for it.
    pub(super) cost: Duration,
}

impl Work {
    /// The query.
    pub(super) fn query(self) -> String {
        format!("select count(*) from generate_series(1, {ROWS});")
    }
}

/// A client that is ended when it is dropped.
pub(super) struct Client(Child);

impl Client {
    pub(super) const fn new(child: Child) -> Self {
        Self(child)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A session that is connected already.
pub(super) struct Saturating {
    input: std::process::ChildStdin,
    _client: Client,
}

/// A steady load under way.
pub(super) struct Steady(Option<Child>);

impl Steady {
    /// Average latency of its queries in milliseconds, after its end.
    pub(super) fn latency(mut self) -> anyhow::Result<f64> {
        let output = self.0.take().context("ended twice")?.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "pgbench: {}", String::from_utf8_lossy(&output.stderr));
        let line = text.lines().find_map(|line| line.strip_prefix("latency average = "));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.with_context(|| format!("no latency in {text}"))?.parse().context("latency")
    }
}

impl Drop for Steady {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

impl Database {
    /// Builds the image unless it was built before, and starts the VM.
    pub(super) fn start(cluster: &Cluster) -> anyhow::Result<Self> {
        let (repository, kept) = (repository()?, repository()?.join("target/tmp/steadiness"));
        let tree = [repository.join("target/demo/postgres-17-root"), kept.join("postgres-17-root")]
            .into_iter()
            .find(|tree| tree.exists())
            .map_or_else(|| make_tree(&kept), Ok)?;
        let spec = repository.join("examples/postgres/image.yaml").display().to_string();
        let (from, server) = (tree.display().to_string(), format!("{PROGRAMS}/postgres"));
        let config = "config_file=/etc/postgresql/17/main/postgresql.conf";
        let build =
            ["vm", "build", "--progress", "none", "--from", &from, "-f", &spec, "-t", "steady/postgres:17"];
        let settings = ["--size", "4Gi", "--user", "postgres", "--stop-signal", "SIGINT", "--"];
        let command = [&server, "-D", "/var/lib/postgresql/17/main", "-c", config];
        cluster.neonctl(&[&build[..], &settings[..], &command[..]].concat())?;
        let create = ["vm", "create", NAME, "--image", "steady/postgres:17", "--port", "5432"];
        let sizes = ["--cpu", "0.25..1", "--memory", "1Gi..4Gi", "--wait"];
        cluster.neonctl(&[&create[..], &sizes[..]].concat())?;
        let address = cluster.neonctl(&["vm", "get", NAME, "-o", "jsonpath={.status.podIP}"])?;
        let database = Self { tree, address: address.trim().to_owned() };
        let begun = Instant::now();
        while !database.client("pg_isready", &["-q"]).status()?.success() {
            ensure!(begun.elapsed() < START, "PostgreSQL does not answer at {}:5432", database.address);
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(database)
    }

    /// A program of the image's own tree, so that nothing has to be installed for it.
    pub(super) fn client(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("chroot");
        command.arg(&self.tree).arg(format!("{PROGRAMS}/{program}"));
        command.args(["-h", &self.address]).args(arguments).env("LC_ALL", "C.UTF-8");
        command
    }

    fn session(&self) -> anyhow::Result<(Client, std::process::ChildStdin)> {
        let mut command = self.client("psql", &["-U", "postgres", "-qAt"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut client = Client(command.spawn().context("psql")?);
        let input = client.0.stdin.take().context("psql has no input")?;
        Ok((client, input))
    }

    /// A client that stays connected and reads statistics every ten seconds.
    pub(super) fn monitoring(&self) -> anyhow::Result<Client> {
        let (client, mut input) = self.session()?;
        let query = "select sum(xact_commit) from pg_stat_database; select count(*) from pg_stat_activity;\n";
        // Ends with the session, when the pipe breaks.
        std::thread::spawn(move || {
            while input.write_all(query.as_bytes()).and_then(|()| input.flush()).is_ok() {
                std::thread::sleep(MONITORING);
            }
        });
        Ok(client)
    }

    /// What a query costs, by the CPU time of the guest with queries and without.
    pub(super) fn calibrate(&self, cluster: &Cluster) -> anyhow::Result<Work> {
        let query = Work { cost: Duration::ZERO }.query();
        let queries: Vec<&str> = std::iter::repeat_n(["-c", &query], TIMES as usize).flatten().collect();
        let begun = busy(cluster)?;
        let none = busy(cluster)? - begun;
        let begun = busy(cluster)?;
        run(&mut self.client("psql", &[&["-U", "postgres", "-qAt"], &queries[..]].concat()))?;
        let cost = (busy(cluster)? - begun - none) / f64::from(TIMES);
        ensure!(cost > 0.0005, "a query takes {cost} s of CPU, which cannot be measured");
        Ok(Work { cost: Duration::from_secs_f64(cost) })
    }

    /// Queries at random times that need so much of a CPU.
    pub(super) fn steady(&self, work: Work, percent: u32, length: Duration) -> anyhow::Result<Steady> {
        let rate = format!("{:.2}", f64::from(percent) / 100.0 / work.cost.as_secs_f64());
        let seconds = length.as_secs().to_string();
        let arguments =
            ["-U", "postgres", "-n", "-c", "4", "-T", &seconds, "-R", &rate, "-f", "-", "postgres"];
        let mut command = self.client("pgbench", &arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("pgbench")?;
        let mut input = child.stdin.take().context("pgbench has no input")?;
        writeln!(input, "{}", work.query())?;
        Ok(Steady(Some(child)))
    }

    /// A session for queries that need all CPU.
    pub(super) fn saturating(&self) -> anyhow::Result<Saturating> {
        let (client, input) = self.session()?;
        Ok(Saturating { _client: client, input })
    }
}

impl Saturating {
    /// Starts a query that the server ends after so long.
    pub(super) fn query(&mut self, length: Duration) -> anyhow::Result<()> {
        let limit = length.as_millis();
        writeln!(
            self.input,
            "set statement_timeout = {limit}; select count(*) from generate_series(1, 1000000000);"
        )?;
        Ok(self.input.flush()?)
    }
}

/// Seconds that the guest's processors were busy since its boot.
fn busy(cluster: &Cluster) -> anyhow::Result<f64> {
    let text = cluster.neonctl(&["vm", "ssh", NAME, "--", "head -n 1 /proc/stat"])?;
    let times: Vec<f64> = text.split_whitespace().skip(1).filter_map(|time| time.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = times[..] else {
        anyhow::bail!("no times in {text:?}")
    };
    Ok((user + nice + system + irq + softirq) / TICKS)
}

fn make_tree(kept: &std::path::Path) -> anyhow::Result<PathBuf> {
    let (making, tree) = (kept.join("postgres-17-root.making"), kept.join("postgres-17-root"));
    if making.exists() {
        std::fs::remove_dir_all(&making)?;
    }
    std::fs::create_dir_all(kept)?;
    run(Command::new(repository()?.join("examples/postgres/make-root.sh")).arg(&making))?;
    std::fs::rename(&making, &tree)?;
    Ok(tree)
}
