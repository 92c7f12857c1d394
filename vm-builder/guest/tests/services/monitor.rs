//! The monitor, with agents on real websockets.

use neonvm_test_support::eventually_blocking;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message, WebSocket, client, protocol::CloseFrame};

use crate::process::{DEADLINE, PROGRAM, answer, connect, request, wait_until};

/// A running monitor; killed when dropped.
pub(crate) struct Monitor {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Monitor {
    pub(crate) fn start(root: &Path, flags: &[&str]) -> Self {
        Self::spawn(Command::new(PROGRAM), root, flags)
    }

    /// As init starts it; what it prints is for init.
    pub(crate) fn start_as_child(root: &Path, flags: &[&str]) -> (Self, ChildStdout) {
        let mut command = Command::new(PROGRAM);
        command.env("NEONVM_INIT", "1").stdout(Stdio::piped());
        let mut monitor = Self::spawn(command, root, flags);
        let stdout = monitor.child.stdout.take().unwrap();
        (monitor, stdout)
    }

    fn spawn(mut command: Command, root: &Path, flags: &[&str]) -> Self {
        command.args(["monitor", "--addr=127.0.0.1:0"]).arg(format!("--root={}", root.display()));
        let mut child = command.args(flags).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        // The thread reads to the end, so that the monitor never waits for us.
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let address = loop {
            let line = lines.recv_timeout(DEADLINE).expect("the monitor prints its address");
            if let Some((_, address)) = line.split_once("monitor listens on ") {
                break address.parse().unwrap();
            }
        };
        Self { child, address }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Agent(WebSocket<TcpStream>);

impl Agent {
    pub(crate) fn dial(monitor: &Monitor) -> Self {
        let stream = connect(monitor.address);
        let url = format!("ws://{}/monitor", monitor.address);
        Self(client(url, stream).expect("an upgrade").0)
    }

    /// With the version agreed on, out of `{"min":1,"max":max}`.
    pub(crate) fn connect(monitor: &Monitor, max: u32) -> Self {
        let mut agent = Self::dial(monitor);
        agent.send(&format!(r#"{{"min":1,"max":{max}}}"#));
        assert_eq!(agent.receive(), format!(r#"{{"version":{max}}}"#));
        agent
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.0.send(Message::text(text)).unwrap();
    }

    /// The next text. Pings in between do not prolong the wait for it.
    pub(crate) fn receive(&mut self) -> String {
        let until = Instant::now() + DEADLINE;
        loop {
            assert!(Instant::now() < until, "no message within {DEADLINE:?}");
            match self.0.read().expect("a message") {
                Message::Text(text) => return text.to_string(),
                Message::Close(frame) => panic!("closed: {frame:?}"),
                _ => {}
            }
        }
    }

    /// The answer with this text in it; requests for more in between are passed over.
    pub(crate) fn receive_with(&mut self, part: &str) -> String {
        eventually_blocking(|| part.to_owned(), || Some(self.receive()).filter(|text| text.contains(part)))
    }

    fn end(&mut self) -> Option<CloseFrame> {
        loop {
            match self.0.read() {
                Ok(Message::Close(frame)) => return frame,
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }
}

/// A guest of files: 2 CPUs of 4, 4 GiB of memory.
pub(crate) struct Guest(tempfile::TempDir);

impl Guest {
    pub(crate) fn new() -> Self {
        let guest = Self(tempfile::tempdir().unwrap());
        for directory in ["proc", "sys/devices/system/cpu"] {
            std::fs::create_dir_all(guest.path().join(directory)).unwrap();
        }
        guest.memory(4 << 20, 100 << 10);
        guest.runnable(0);
        guest.write("sys/devices/system/cpu/online", "0-1\n");
        guest.write("sys/devices/system/cpu/possible", "0-3\n");
        guest
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// In place and of one length: the monitor may read at any time.
    fn write(&self, path: &str, text: &str) {
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.path().join(path))
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Memory there is and anonymous memory in use, both in KiB.
    pub(crate) fn memory(&self, total: u64, anonymous: u64) {
        let available = total - anonymous;
        let text = format!(
            "MemTotal: {total:12} kB\nMemAvailable: {available:12} kB\nAnonPages: {anonymous:12} kB\nShmem: 0 kB\n"
        );
        self.write("proc/meminfo", &text);
    }

    fn runnable(&self, tasks: u32) {
        self.write("proc/loadavg", &format!("0.00 0.00 0.00 {:4}/100 1000\n", tasks + 1));
    }
}

#[test]
fn an_agent_of_the_first_version_gets_its_messages_to_the_byte() {
    let guest = Guest::new();
    let monitor = Monitor::start(guest.path(), &[]);
    let mut agent = Agent::connect(&monitor, 1);
    agent.send(r#"{"content":{},"type":"HealthCheck","id":2}"#);
    assert_eq!(agent.receive(), r#"{"type":"HealthCheck","id":2}"#);
    agent.send(r#"{"content":{"granted":{"cpu":0.5,"mem":4294967296}},"type":"UpscaleNotification","id":4}"#);
    assert_eq!(agent.receive(), r#"{"type":"UpscaleConfirmation","id":4}"#);
    // Refused until there are two samples.
    let mut verdict = String::new();
    wait_until("two samples", || {
        agent
            .send(r#"{"content":{"target":{"cpu":0.25,"mem":2147483648}},"type":"DownscaleRequest","id":6}"#);
        verdict = agent.receive();
        verdict.contains(r#""Ok":true"#)
    });
    assert!(verdict.starts_with(r#"{"type":"DownscaleResult","Ok":true,"Status":"#), "{verdict}");
    assert!(verdict.ends_with(r#","id":6}"#), "{verdict}");
    guest.runnable(50);
    guest.memory(4 << 20, 3900 << 10);
    assert_eq!(agent.receive(), r#"{"type":"UpscaleRequest","id":3}"#);
    agent.send(r#"{"content":{"error":"no"},"type":"InvalidMessage","id":3}"#);
    assert_eq!(agent.receive(), r#"{"type":"UpscaleRequest","id":5}"#);
}

#[test]
fn an_agent_of_the_second_version_gets_the_wanted_amounts() {
    let guest = Guest::new();
    let monitor = Monitor::start(guest.path(), &[]);
    let mut agent = Agent::connect(&monitor, 2);
    guest.runnable(2);
    let text = agent.receive();
    assert!(text.starts_with(r#"{"type":"UpscaleRequest","wants":{"cpu":"2001m","reason":"CPU: "#), "{text}");
    guest.runnable(100);
    // No more than the four processors there can be.
    agent.receive_with(r#""cpu":4,"#);
    guest.runnable(0);
    guest.memory(4 << 20, 4000 << 10);
    let text = agent.receive_with(r#""mem":"#);
    assert!(text.contains("memory: 4000 MiB in use"), "{text}");
    agent.send(r#"{"content":{"target":{"cpu":2,"mem":2147483648}},"type":"DownscaleRequest","id":2}"#);
    let verdict = agent.receive_with("DownscaleResult");
    assert!(verdict.contains(r#""Ok":false"#), "{verdict}");
}

#[test]
fn memory_is_that_of_the_control_group_if_one_is_named() {
    let guest = Guest::new();
    let group = guest.path().join("sys/fs/cgroup/neon-postgres");
    std::fs::create_dir_all(&group).unwrap();
    std::fs::write(group.join("memory.stat"), "anon 9\ninactive_anon 1073741824\nactive_anon 3221225472\n")
        .unwrap();
    let monitor = Monitor::start(guest.path(), &["-c", "neon-postgres"]);
    let mut agent = Agent::connect(&monitor, 1);
    assert_eq!(agent.receive(), r#"{"type":"UpscaleRequest","id":3}"#);
}

#[test]
fn versions_without_overlap_are_refused_in_words() {
    let guest = Guest::new();
    let monitor = Monitor::start(guest.path(), &[]);
    for (offer, part) in [
        (r#"{"min":3,"max":9}"#, "no shared version"),
        (r#"{"min":2,"max":1}"#, ""),
        ("hello", "monitor handshake"),
    ] {
        let mut agent = Agent::dial(&monitor);
        // What is not text does not count.
        agent.0.send(Message::binary(vec![1, 2, 3])).unwrap();
        agent.send(offer);
        let text = agent.receive();
        assert!(text.starts_with(r#"{"error":""#) && text.contains(part), "{offer}: {text}");
        assert_eq!(agent.end().unwrap().code, CloseCode::Protocol, "{offer}");
    }
    Agent::connect(&monitor, 2);
}

#[test]
fn the_newest_connection_wins_and_the_old_one_gets_the_reason() {
    let guest = Guest::new();
    let monitor = Monitor::start(guest.path(), &[]);
    let mut old = Agent::connect(&monitor, 1);
    // A connection that never agrees on a version replaces no other.
    let mut half = Agent::dial(&monitor);
    half.send("{}");
    assert!(half.receive().contains("error"));
    old.send(r#"{"content":{},"type":"HealthCheck","id":2}"#);
    assert_eq!(old.receive(), r#"{"type":"HealthCheck","id":2}"#);
    let mut new = Agent::connect(&monitor, 2);
    let frame = old.end().unwrap();
    assert_eq!(frame.code, CloseCode::Normal);
    assert!(frame.reason.contains("newer connection"), "{frame:?}");
    new.send(r#"{"content":{},"type":"HealthCheck","id":2}"#);
    assert_eq!(new.receive(), r#"{"type":"HealthCheck","id":2}"#);
}

/// Upstream's monitor drops the connection and never answers.
#[test]
fn messages_that_make_no_sense_are_answered() {
    let guest = Guest::new();
    let monitor = Monitor::start(guest.path(), &[]);
    let mut agent = Agent::connect(&monitor, 1);
    for (text, id) in [
        ("hello", 0),
        ("[]", 0),
        (r#"{"type":"Dance","content":{},"id":7}"#, 7),
        (r#"{"type":"HealthCheck","id":8}"#, 8),
        (r#"{"type":"DownscaleRequest","content":{"target":{"cpu":-1,"mem":1}},"id":9}"#, 9),
        (r#"{"type":"DownscaleRequest","content":{"target":{"cpu":1,"mem":-1}},"id":10}"#, 10),
        (r#"{"type":"UpscaleNotification","content":{},"id":11}"#, 11),
    ] {
        agent.send(text);
        let answer = agent.receive();
        assert!(answer.starts_with(r#"{"type":"InvalidMessage","error":""#), "{text}: {answer}");
        assert!(answer.ends_with(&format!(r#","id":{id}}}"#)), "{text}: {answer}");
    }
    agent.0.send(Message::binary(vec![0; 100])).unwrap();
    agent.0.send(Message::Ping(vec![5].into())).unwrap();
    assert_eq!(agent.0.read().unwrap(), Message::Pong(vec![5].into()));
    agent.send(r#"{"content":{},"type":"HealthCheck","id":12}"#);
    assert_eq!(agent.receive(), r#"{"type":"HealthCheck","id":12}"#);
}

#[test]
fn what_is_too_large_ends_the_connection_and_nothing_else() {
    let guest = Guest::new();
    let monitor = Monitor::start(guest.path(), &[]);
    let mut agent = Agent::connect(&monitor, 1);
    let _ = agent.0.send(Message::text("x".repeat(70_000)));
    assert_eq!(agent.end().map(|frame| frame.code), Some(CloseCode::Size));
    Agent::connect(&monitor, 1);
}

#[test]
fn slow_silent_and_wild_clients_do_not_keep_others_out() {
    let guest = Guest::new();
    let monitor = Monitor::start(guest.path(), &[]);
    let mut agent = Agent::connect(&monitor, 1);
    let crowd: Vec<TcpStream> = (0..40).map(|_| connect(monitor.address)).collect();
    let mut half = Agent::dial(&monitor);
    for text in ["\0\0\0\0", "GET\r\n\r\n", "GET /monitor HTTP/9.9\r\n\r\n", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0"]
    {
        let mut stream = connect(monitor.address);
        let _ = stream.write_all(text.as_bytes());
        let _ = stream.shutdown(Shutdown::Write);
        let (status, _) = answer(&mut stream);
        assert!(status == 0 || (400..=505).contains(&status), "{status} for {text:?}");
    }
    agent.send(r#"{"content":{},"type":"HealthCheck","id":2}"#);
    assert_eq!(agent.receive(), r#"{"type":"HealthCheck","id":2}"#);
    // A silent connection is dropped by the deadline of the handshake.
    assert!(matches!(half.0.read(), Err(Error::ConnectionClosed | Error::Protocol(_) | Error::Io(_))));
    for mut stream in crowd {
        let _ = stream.read(&mut [0; 16]);
    }
    // Wild bytes after the handshake.
    let mut wild = Agent::connect(&monitor, 1);
    wild.0.get_mut().write_all(&[0xff; 4096]).unwrap();
    assert!(wild.end().is_some_and(|frame| frame.code == CloseCode::Protocol));
    Agent::connect(&monitor, 1);
}

/// A client that sends requests and reads nothing must not make the monitor hold its answers.
#[test]
fn an_agent_that_does_not_read_is_given_up() {
    let guest = Guest::new();
    let monitor = Monitor::start(guest.path(), &[]);
    let mut agent = Agent::connect(&monitor, 1);
    let long = format!(r#"{{"type":"{}","content":{{}},"id":2}}"#, "x".repeat(60_000));
    let mut is_given_up = || (0..100).any(|_| agent.0.send(Message::text(long.as_str())).is_err());
    eventually_blocking(|| "the end of the connection".to_owned(), &mut is_given_up);
    Agent::connect(&monitor, 1);
}

/// A process of the guest is no agent: nothing is read from it.
#[test]
fn a_process_of_the_guest_is_no_agent() {
    let root = crate::process::machine();
    let monitor = Monitor::start(root.path(), &["--peer=169.254.254.253"]);
    let mut stream = std::net::TcpStream::connect(monitor.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    // The connection ends without a byte; that may come as a reset.
    let _ = stream.write_all(b"GET /monitor HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut byte = [0];
    assert!(!matches!(stream.read(&mut byte), Ok(1..)));
}

#[test]
fn only_the_websocket_is_served() {
    let guest = Guest::new();
    let monitor = Monitor::start(guest.path(), &[]);
    assert_eq!(request(monitor.address, "GET", "/", b"").0, 404);
    assert_eq!(request(monitor.address, "POST", "/monitor", b"").0, 405);
    assert_eq!(request(monitor.address, "GET", "/monitor", b"").0, 426);
}

/// The monitor is in every VM: what it holds is watched. Debug builds are larger, hence the room.
#[test]
fn an_idle_monitor_is_small() {
    let monitor = Monitor::start(Path::new("/"), &[]);
    let mut agent = Agent::connect(&monitor, 2);
    for _ in 0..100 {
        agent.send(r#"{"content":{},"type":"HealthCheck","id":2}"#);
        agent.receive_with("HealthCheck");
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", monitor.child.id())).unwrap();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let kibibytes: u64 = anonymous.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kibibytes < 2048, "{kibibytes} KiB of its own memory");
}
