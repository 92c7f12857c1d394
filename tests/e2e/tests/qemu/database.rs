//! PostgreSQL in VMs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::cluster::Cluster;
use crate::machine;

/// Builds the image `pg:1`.
pub(crate) fn build(cluster: &Cluster) {
    let root = machine::postgres().display().to_string();
    let image = machine::repository().join("examples/postgres/image.yaml").display().to_string();
    let build = ["vm", "build", "--from", &root, "-f", &image, "-t", "pg:1", "--size", "3Gi"];
    let workload =
        ["--user", "postgres", "--stop-signal", "SIGINT", "--", "/usr/lib/postgresql/17/bin/postgres"];
    let database =
        ["-D", "/var/lib/postgresql/17/main", "-c", "config_file=/etc/postgresql/17/main/postgresql.conf"];
    cluster.good(&[&build[..], &workload, &database].concat());
}

/// Waits until it answers.
pub(crate) fn answers(cluster: &Cluster, address: &str) {
    cluster.succeeds(|| {
        let mut command = Command::new("psql");
        command.args(["-h", address, "-U", "postgres", "-qAtc", "select 1"]).env("PGCONNECT_TIMEOUT", "20");
        command
    });
}

/// Fills the tables of `pgbench`.
pub(crate) fn fill(address: &str, scale: &str) {
    let arguments = ["-h", address, "-U", "postgres", "-i", "-s", scale, "-q", "postgres"];
    let filled = Command::new("pgbench").args(arguments).output().unwrap();
    assert!(filled.status.success(), "{}", String::from_utf8_lossy(&filled.stderr));
}

/// One session with the database.
pub(crate) struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    pub(crate) fn open(address: &str) -> Self {
        let mut child = Command::new("psql")
            .args(["-h", address, "-U", "postgres", "-qAt"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output) }
    }

    pub(crate) fn query(&mut self, sql: &str) -> String {
        writeln!(self.input, "{sql};").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
