//! A daemon under test, and plain HTTP.

use neonvm_test_support::eventually_blocking;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Longest wait for anything.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_neonvm-guest");

/// A running daemon; killed when dropped.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) api: SocketAddr,
    pub(crate) metrics: SocketAddr,
    pub(crate) ssh: SocketAddr,
}

impl Daemon {
    pub(crate) fn start(root: &Path, ssh_options: &[String]) -> Self {
        Self::start_with(
            root,
            &ssh_options.iter().map(|option| format!("--ssh-option={option}")).collect::<Vec<_>>(),
        )
    }

    pub(crate) fn start_with(root: &Path, flags: &[String]) -> Self {
        // As `nohup` and shells start what is to run in the background: SIGHUP of sessions must arrive all the same.
        let mut command = Command::new("env");
        command.args(["--ignore-signal=HUP,INT,QUIT", PROGRAM]);
        command.args(["daemon", "-addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0", "--ssh-addr=127.0.0.1:0"]);
        command.arg("--clock=off").arg(format!("--root={}", root.display()));
        command.args(flags);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        // The thread reads to the end, so that the daemon never waits for us.
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut addresses = std::collections::BTreeMap::new();
        while addresses.len() < 3 {
            let line = lines.recv_timeout(DEADLINE).expect("the daemon prints its addresses");
            if let Some((name, address)) = line.rsplit(": ").next().unwrap().split_once(" listens on ") {
                addresses.insert(name.to_owned(), address.parse().unwrap());
            }
        }
        Self { child, api: addresses["api"], metrics: addresses["metrics"], ssh: addresses["ssh"] }
    }

    pub(crate) fn request(&self, method: &str, path: &str, body: &[u8]) -> (u16, String) {
        request(self.api, method, path, body)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream
}

pub(crate) fn request(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> (u16, String) {
    let mut stream = connect(address);
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: vm\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses may stop reading before all of it is sent.
    let _ = stream.write_all(body);
    answer(&mut stream)
}

/// Reads an answer to the end of the connection.
pub(crate) fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, body.to_owned())
}

/// Waits until something holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually_blocking(|| what.to_owned(), &mut holds);
}

/// A tree with four CPUs of which two are online, and a directory for files.
pub(crate) fn machine() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let cpus = root.path().join("sys/devices/system/cpu");
    for number in 1..4 {
        std::fs::create_dir_all(cpus.join(format!("cpu{number}"))).unwrap();
    }
    std::fs::write(cpus.join("online"), "0-1\n").unwrap();
    std::fs::write(cpus.join("offline"), "2-3\n").unwrap();
    std::fs::create_dir_all(root.path().join("var/my files")).unwrap();
    root
}
