//! The informant's protocol, with fake agents over HTTP.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::monitor::{self, Guest, Monitor};
use crate::process::{connect, request, wait_until};

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Good,
    /// Nothing is answered.
    Silence,
    WrongId,
    /// Not found.
    Gone,
    /// A head without end.
    Endless,
}

/// An agent: serves the informant, and calls it.
struct Agent {
    id: String,
    address: SocketAddr,
    mode: Arc<Mutex<Mode>>,
    paths: Arc<Mutex<Vec<String>>>,
    sequence: Mutex<u64>,
}

impl Agent {
    fn start(number: u32, mode: Mode) -> Self {
        let id = format!("67e55044-10b1-426f-9247-bb680e5fe{number:03}");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, paths) = (Arc::new(Mutex::new(mode)), Arc::<Mutex<Vec<String>>>::default());
        let (own, modes, seen) = (id.clone(), Arc::clone(&mode), Arc::clone(&paths));
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (own, mode, seen) = (own.clone(), *modes.lock().unwrap(), Arc::clone(&seen));
                std::thread::spawn(move || serve(stream, &own, mode, &seen));
            }
        });
        Self { id, address, mode, paths, sequence: Mutex::new(100) }
    }

    fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    fn description(&self) -> String {
        format!(
            r#"{{"agentID":"{}","agentServeAddr":"{}/mux","minProtoVersion":1,"maxProtoVersion":4}}"#,
            self.id, self.address
        )
    }

    fn register(&self, monitor: &Monitor) -> (u16, String) {
        request(monitor.address, "POST", "/register", self.description().as_bytes())
    }

    fn unregister(&self, monitor: &Monitor) -> (u16, String) {
        request(monitor.address, "DELETE", "/unregister", self.description().as_bytes())
    }

    fn health_check(&self, monitor: &Monitor) -> u16 {
        let body = format!(r#"{{"agentID":"{}"}}"#, self.id);
        request(monitor.address, "PUT", "/health-check", body.as_bytes()).0
    }

    /// `/downscale` or `/upscale`, signed.
    fn change(&self, monitor: &Monitor, path: &str, cpu: &str, memory: &str) -> (u16, String) {
        let mut sequence = self.sequence.lock().unwrap();
        *sequence += 1;
        let body = format!(
            r#"{{"data":{{"cpu":"{cpu}","memory":"{memory}","id":{{"agentID":"{}"}}}},"sequenceNumber":{sequence}}}"#,
            self.id
        );
        request(monitor.address, "PUT", path, body.as_bytes())
    }

    /// How often this path was requested.
    fn count(&self, path: &str) -> usize {
        self.paths.lock().unwrap().iter().filter(|own| *own == path).count()
    }

    fn is_asked(&self, path: &str) {
        wait_until(path, || self.count(path) > 0);
    }
}

fn serve(mut stream: TcpStream, id: &str, mode: Mode, paths: &Mutex<Vec<String>>) {
    let mut text = Vec::new();
    let mut buffer = [0; 1024];
    // A request of the informant is small and complete when its body ends.
    while !text.ends_with(b"}") {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => text.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
    let text = String::from_utf8(text).unwrap();
    let path = text.split(' ').nth(1).unwrap().strip_prefix("/mux").unwrap().to_owned();
    if path != "/id" {
        assert!(text.contains(&format!(r#""expectedID":"{id}""#)), "{text}");
    }
    paths.lock().unwrap().push(path);
    let id = if mode == Mode::WrongId { "00000000-10b1-426f-9247-bb680e5fe0c8" } else { id };
    let body = format!(r#"{{"data":{{"agentID":"{id}"}},"sequenceNumber":7}}"#);
    let answer = match mode {
        Mode::Silence => {
            let _ = stream.read(&mut buffer);
            return;
        }
        Mode::Endless => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
            while stream.write_all(b"x-more: and more\r\n").is_ok() {}
            return;
        }
        Mode::Gone => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
        Mode::Good | Mode::WrongId => {
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        }
    };
    let _ = stream.write_all(answer.as_bytes());
}

const ANSWER: &str = r#"{"protoVersion":4,"metricsMethod":{"prometheus":{"port":9100}}}"#;

/// Registered and resumed.
fn joined(monitor: &Monitor, number: u32) -> Agent {
    let agent = Agent::start(number, Mode::Good);
    assert_eq!(agent.register(monitor), (200, ANSWER.to_owned()));
    agent.is_asked("/resume");
    // The answer to /resume arrives after it was requested.
    wait_until("the current agent", || agent.change(monitor, "/upscale", "2", "4Gi").0 == 200);
    agent
}

#[test]
fn an_agent_registers_changes_the_size_and_leaves() {
    let guest = Guest::new();
    let monitor = Monitor::start(guest.path(), &["--informant"]);
    let agent = joined(&monitor, 1);
    assert_eq!(agent.count("/id"), 1, "the identity is verified first");
    assert_eq!(agent.health_check(&monitor), 200);
    assert_eq!(agent.register(&monitor).0, 409);
    assert_eq!(agent.change(&monitor, "/upscale", "3", "8Gi"), (200, "{}".to_owned()));
    // Two samples at least are needed for consent.
    wait_until("consent", || {
        let (status, body) = agent.change(&monitor, "/downscale", "250m", "2Gi");
        status == 200 && body.starts_with(r#"{"Ok":true,"Status":"memory: "#)
    });
    guest.memory(4 << 20, 3 << 20);
    wait_until("no consent", || {
        let (status, body) = agent.change(&monitor, "/downscale", "250m", "2Gi");
        status == 200 && body.starts_with(r#"{"Ok":false,"#)
    });
    assert_eq!(agent.unregister(&monitor), (200, r#"{"wasActive":true}"#.to_owned()));
    assert_eq!(agent.unregister(&monitor).0, 404);
    assert_eq!(agent.health_check(&monitor), 404);
    assert_eq!(agent.change(&monitor, "/upscale", "3", "8Gi").0, 400);
}

#[test]
fn memory_is_requested_of_the_current_agent() {
    let guest = Guest::new();
    let monitor = Monitor::start(guest.path(), &["--informant"]);
    guest.memory(4 << 20, 3900 << 10);
    let first = joined(&monitor, 1);
    first.is_asked("/try-upscale");
    let second = joined(&monitor, 2);
    assert_eq!(first.count("/suspend"), 1);
    second.is_asked("/try-upscale");
    let (status, body) = first.change(&monitor, "/upscale", "2", "8Gi");
    assert!(status == 400 && body.contains("is not the current one"), "{status} {body}");
    // The second leaves without a word: the first is the newest again, and is resumed.
    assert_eq!(second.unregister(&monitor).0, 200);
    wait_until("the first is resumed", || first.count("/resume") == 2);
    wait_until("the current agent", || first.change(&monitor, "/upscale", "2", "8Gi").0 == 200);
}

#[test]
fn the_protocol_is_off_by_default() {
    let guest = Guest::new();
    let monitor = Monitor::start(guest.path(), &[]);
    let agent = Agent::start(1, Mode::Good);
    assert_eq!(agent.register(&monitor).0, 404);
    assert_eq!(agent.count("/id"), 0);
}

/// An agent with the monitor's protocol goes before one with the informant's.
#[test]
fn a_monitors_agent_displaces_an_informants() {
    let guest = Guest::new();
    let monitor = Monitor::start(guest.path(), &["--informant"]);
    let old = joined(&monitor, 1);
    let mut new = monitor::Agent::connect(&monitor, 2);
    new.send(r#"{"type":"HealthCheck","id":2,"content":{}}"#);
    new.receive_with("HealthCheck");
    assert_eq!(old.health_check(&monitor), 404);
    assert_eq!(old.register(&monitor).0, 503);
    drop(new);
    wait_until("the port is free again", || old.register(&monitor).0 == 200);
}

#[test]
fn agents_that_misbehave_are_refused() {
    let guest = Guest::new();
    let monitor = Monitor::start(guest.path(), &["--informant"]);
    let current = joined(&monitor, 1);
    for (number, mode) in [Mode::Silence, Mode::WrongId, Mode::Gone, Mode::Endless].into_iter().enumerate() {
        let agent = Agent::start(u32::try_from(number).unwrap() + 10, mode);
        let (status, body) = agent.register(&monitor);
        assert!(status == 400 && body.contains(&agent.id), "{status} {body}");
    }
    let description = current.description();
    let nowhere = description.replace(&current.address.to_string(), "127.0.0.1:1").replace("fe001", "fe999");
    assert_eq!(request(monitor.address, "POST", "/register", nowhere.as_bytes()).0, 400);
    let huge = format!("{}{}", description, " ".repeat(1 << 20));
    for (method, path, body, status) in [
        ("GET", "/register", description.as_str(), 405),
        ("POST", "/downscale", "{}", 405),
        ("POST", "/register", "{}", 400),
        ("POST", "/register", "", 400),
        ("PUT", "/health-check", "[]", 400),
        ("PUT", "/downscale", "\u{0}", 400),
        ("PUT", "/upscale", r#"{"data":{"cpu":null,"memory":null},"sequenceNumber":0}"#, 400),
        ("DELETE", "/unregister", r#"{"agentID":"me"}"#, 400),
        ("GET", "/id", "{}", 404),
    ] {
        let (answered, text) = request(monitor.address, method, path, body.as_bytes());
        assert_eq!(answered, status, "{method} {path}: {text}");
    }
    let (status, _) = request(monitor.address, "POST", "/register", huge.as_bytes());
    assert!([413, 0].contains(&status), "the answer may be lost with the rest of the body unread");
    // Clients that send nothing, or half of it.
    let crowd: Vec<TcpStream> = (0..40).map(|_| connect(monitor.address)).collect();
    let mut half = connect(monitor.address);
    half.write_all(b"PUT /downscale HTTP/1.1\r\nhost: vm\r\ncontent-length: 99\r\n\r\n{").unwrap();
    assert_eq!(current.health_check(&monitor), 200);
    drop((crowd, half));
    // The current agent does not answer any more: a new one takes its place.
    current.set(Mode::Silence);
    let next = Agent::start(2, Mode::Good);
    assert_eq!(next.register(&monitor).0, 200);
    next.is_asked("/resume");
    assert_eq!(current.health_check(&monitor), 404);
}

/// The workload's control group is limited while an agent is the current one.
#[test]
fn the_workloads_group_is_limited() {
    let guest = Guest::new();
    let group = guest.path().join("sys/fs/cgroup/work");
    std::fs::create_dir_all(&group).unwrap();
    for (file, text) in [
        ("memory.stat", "inactive_anon 1048576\nactive_anon 1048576\n"),
        ("memory.current", "104857600\n"),
        ("memory.events", "low 0\nhigh 0\nmax 0\n"),
        ("memory.high", "1\n"),
        ("memory.max", "1\n"),
        ("cgroup.freeze", "1\n"),
    ] {
        std::fs::write(group.join(file), text).unwrap();
    }
    let monitor = Monitor::start(guest.path(), &["--informant", "--cgroup=work"]);
    let shows = |file: &str, text: &str| {
        wait_until(&format!("{file}: {text}"), || read(&group, file) == text);
    };
    shows("cgroup.freeze", "0");
    shows("memory.high", "max");
    let agent = joined(&monitor, 1);
    // 4 GiB: 100 MiB are the system's, 100 MiB lie between the two limits.
    shows("memory.max", &(3996_u64 << 20).to_string());
    shows("memory.high", &(3896_u64 << 20).to_string());
    std::fs::write(group.join("memory.events"), "low 0\nhigh 5\nmax 0\n").unwrap();
    agent.is_asked("/try-upscale");
    guest.memory(8 << 20, 1 << 20);
    assert_eq!(agent.change(&monitor, "/upscale", "2", "8Gi").0, 200);
    shows("memory.max", &(8092_u64 << 20).to_string());
    shows("cgroup.freeze", "0");
    assert_eq!(agent.unregister(&monitor).0, 200);
    shows("memory.max", "max");
    shows("memory.high", "max");
}

fn read(group: &Path, file: &str) -> String {
    std::fs::read_to_string(group.join(file)).unwrap()
}
