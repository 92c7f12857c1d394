//! The file cache, with a real PostgreSQL. Neon's settings are placeholders in its configuration.

use neonvm_test_support::{Need, need, needs};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::monitor::{Agent, Guest, Monitor};
use crate::process::wait_until;

/// A server in a separate directory; stopped when dropped.
struct Server {
    directory: tempfile::TempDir,
    programs: PathBuf,
}

impl Server {
    fn start() -> Need<Self> {
        let server = Self { directory: tempfile::tempdir().unwrap(), programs: needs::postgresql()? };
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(server.directory.path(), open).unwrap();
        std::fs::write(server.path("password"), "secret word\n").unwrap();
        let (data, password) = (server.text("data"), server.text("password"));
        server.run("initdb", &["-D", &data, "-A", "trust", "-U", "cloud_admin", "--pwfile", &password]);
        let configuration = format!(
            "listen_addresses = ''\nunix_socket_directories = '{}'\nneon.max_file_cache_size = '1GB'\n\
             neon.file_cache_size_limit = '0'\nfsync = off\n",
            server.directory.path().display()
        );
        std::fs::write(server.path("data/postgresql.conf"), configuration).unwrap();
        server.turn("start");
        Ok(server)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]);
        command.arg(self.programs.join(program)).args(arguments).current_dir("/").stdin(Stdio::null());
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program, arguments).stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn turn(&self, action: &str) {
        let (data, log) = (self.text("data"), self.text("log"));
        self.run("pg_ctl", &["-s", "-w", "-D", &data, "-l", &log, "-m", "immediate", action]);
    }

    fn limit(&self) -> String {
        let host = self.directory.path().display().to_string();
        let query = "show neon.file_cache_size_limit";
        let text =
            self.run("psql", &["-h", &host, "-U", "cloud_admin", "-d", "postgres", "-At", "-c", query]);
        text.trim().to_owned()
    }

    fn connection(&self, more: &str) -> String {
        format!("host={} user=cloud_admin dbname=postgres {more}", self.directory.path().display())
    }

    /// Only this kind of login from now on.
    fn demand(&self, method: &str) {
        std::fs::write(self.path("data/pg_hba.conf"), format!("local all all {method}\n")).unwrap();
        // Returns before the server has read its new configuration.
        self.turn("reload");
        let host = self.directory.path().display().to_string();
        let arguments = ["-h", &host, "-U", "cloud_admin", "-d", "postgres", "-w", "-c", "select 1"];
        wait_until(&format!("a server that wants {method}"), || {
            let without_password = self.command("psql", &arguments).output().unwrap();
            without_password.status.success() == (method == "trust")
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if Path::new(&self.path("data/postmaster.pid")).exists() {
            self.turn("stop");
        }
    }
}

#[test]
fn the_file_cache_follows_the_size_of_the_vm() {
    let server = need!(Server::start());
    let guest = Guest::new();
    let connection = server.connection("");
    let monitor = Monitor::start(guest.path(), &["-p", &connection]);
    let mut agent = Agent::connect(&monitor, 1);
    // 4 GiB would have 2,997 MiB of cache; its maximum is less.
    wait_until("the size at the connection", || server.limit() == "1024");
    let mut verdict = String::new();
    // A request to a server that is sometimes slow is repeated, as agents do.
    wait_until("two samples", || {
        agent
            .send(r#"{"content":{"target":{"cpu":0.25,"mem":1073741824}},"type":"DownscaleRequest","id":2}"#);
        verdict = agent.receive();
        !verdict.contains("too few samples") && !verdict.contains("did not answer in time")
    });
    assert!(verdict.contains(r#""Ok":true"#) && verdict.contains("file cache: 607 MiB"), "{verdict}");
    wait_until("the smaller size", || server.limit() == "607");
    // A server that restarts costs one attempt, not the answer (upstream did not try again).
    server.turn("restart");
    agent.send(r#"{"content":{"granted":{"cpu":1,"mem":1476395008}},"type":"UpscaleNotification","id":4}"#);
    assert_eq!(agent.receive(), r#"{"type":"UpscaleConfirmation","id":4}"#);
    wait_until("the larger size", || server.limit() == "956");
    // Without a server there is no consent, and the agent gets the reason.
    server.turn("stop");
    agent.send(r#"{"content":{"target":{"cpu":0.25,"mem":1073741824}},"type":"DownscaleRequest","id":6}"#);
    let answer = agent.receive();
    assert!(answer.starts_with(r#"{"type":"InternalError","error":"file cache: connection"#), "{answer}");
    agent.send(r#"{"content":{},"type":"HealthCheck","id":8}"#);
    assert_eq!(agent.receive(), r#"{"type":"HealthCheck","id":8}"#);
}

#[test]
fn passwords_are_shown_in_the_way_the_server_wants() {
    let server = need!(Server::start());
    let guest = Guest::new();
    for (method, stored) in
        [("scram-sha-256", "scram-sha-256"), ("md5", "md5"), ("password", "scram-sha-256")]
    {
        let host = server.directory.path().display().to_string();
        server.demand("trust");
        let set =
            format!("set password_encryption = '{stored}'; alter role cloud_admin password 'secret word'");
        let psql = ["-h", &host, "-U", "cloud_admin", "-d", "postgres", "-c"];
        server.run("psql", &[&psql[..], &[&set]].concat());
        server.run("psql", &[&psql[..], &["alter system reset neon.file_cache_size_limit"]].concat());
        server.demand(method);
        let connection = server.connection("password='secret word'");
        let monitor = Monitor::start(guest.path(), &["-p", &connection]);
        let _agent = Agent::connect(&monitor, 1);
        let settings = server.path("data/postgresql.auto.conf");
        wait_until(method, || {
            std::fs::read_to_string(&settings).is_ok_and(|text| text.contains("limit = '1024'"))
        });
    }
    server.demand("scram-sha-256");
    let connection = server.connection("password=wrong");
    let monitor = Monitor::start(guest.path(), &["-p", &connection]);
    let mut agent = Agent::connect(&monitor, 1);
    agent.send(r#"{"content":{"granted":{"cpu":1,"mem":1476395008}},"type":"UpscaleNotification","id":4}"#);
    let answer = agent.receive();
    assert!(answer.contains("InternalError") && answer.contains("28P01"), "{answer}");
}
