//! The device plugin runs with the flags of its manifest.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use neonvm_port::Reserved;

use crate::cluster::manifests;
use crate::service::{arguments, containers, listening};

#[test]
fn the_device_plugin_runs_with_the_flags_of_its_manifest() {
    let plugin = Plugin::start(Stdio::piped());
    let mut child = plugin.child;
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    // There is no kubelet here: it goes on trying.
    let waits = lines.by_ref().find(|line| line.contains("cannot register"));
    let answer = probe(plugin.probes.address());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(waits.is_some(), "it ended before");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("neonvm/tun"), "{answer}");
}

/// The process that collects the log may be restarted, and its end of the pipe be closed for ever.
#[test]
fn a_service_continues_when_its_log_is_not_read() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut plugin = Plugin::start(writer.into());
    let deadline = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(plugin.probes.address()).is_err() {
        assert!(Instant::now() < deadline, "it does not listen");
        assert!(plugin.child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    // By then it has failed to register, and to log that.
    let answer = probe(plugin.probes.address());
    let ended = plugin.child.try_wait().unwrap();
    plugin.child.kill().unwrap();
    plugin.child.wait().unwrap();
    assert_eq!(ended, None);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
}

struct Plugin {
    child: Child,
    probes: Reserved,
    _directory: tempfile::TempDir,
}

impl Plugin {
    /// Starts it with the arguments of its manifest, but where no kubelet is.
    fn start(log: Stdio) -> Self {
        let all = manifests();
        let container = all
            .iter()
            .flat_map(|(_, workload)| containers(workload))
            .find(|container| container["name"] == "device-plugin")
            .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let probes = Reserved::loopback().unwrap();
        let mut arguments = arguments(container);
        let (flag, given) = listening(&arguments).into_iter().next().expect("a place for probes");
        for word in arguments.iter_mut().filter(|word| **word == format!("{flag}={given}")) {
            *word = format!("{flag}={}", probes.address());
        }
        let child = Command::new(env!("CARGO_BIN_EXE_neond"))
            .args(arguments)
            .arg("--kubelet-directory")
            .arg(directory.path())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, probes, _directory: directory }
    }
}

fn probe(address: SocketAddr) -> String {
    let mut answer = String::new();
    let mut connection = TcpStream::connect(address).unwrap();
    connection.write_all(b"GET /readyz HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").unwrap();
    connection.read_to_string(&mut answer).unwrap();
    answer
}
