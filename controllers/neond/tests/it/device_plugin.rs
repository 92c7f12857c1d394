//! The device plugin runs with the flags of its manifest.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use neonvm_kit::port::Reserved;
use neonvm_test_support::eventually_blocking;

use crate::cluster::manifests;
use crate::service::{arguments, containers, listen_here};

#[test]
fn the_device_plugin_runs_with_the_flags_of_its_manifest() {
    let mut plugin = Plugin::start(Stdio::piped());
    let mut lines = BufReader::new(plugin.child.stderr.take().unwrap()).lines().map_while(Result::ok);
    // There is no kubelet here: it continues to try.
    let waits = lines.by_ref().find(|line| line.contains("cannot register"));
    assert!(waits.is_some(), "it ended before");
    let answer = probe(TcpStream::connect(plugin.address()).unwrap());
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("neonvm/tun"), "{answer}");
}

/// The log's reader can exit while the service runs. The pipe then stays closed.
#[test]
fn a_service_continues_when_its_log_is_not_read() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut plugin = Plugin::start(writer.into());
    let address = plugin.address();
    let connection = eventually_blocking(
        || "a listener".to_owned(),
        || {
            assert_eq!(plugin.child.try_wait().unwrap(), None, "it ended");
            TcpStream::connect(address)
        },
    );
    // By then it has failed to register, and to log that.
    let answer = probe(connection);
    assert_eq!(plugin.child.try_wait().unwrap(), None);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
}

struct Plugin {
    child: Child,
    addresses: BTreeMap<String, Reserved>,
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
        let mut arguments = arguments(container);
        let addresses = listen_here(&mut arguments);
        let child = Command::new(env!("CARGO_BIN_EXE_neond"))
            .args(arguments)
            .arg("--kubelet-directory")
            .arg(directory.path())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, addresses, _directory: directory }
    }

    /// Where it answers probes, the only address it listens on.
    fn address(&self) -> SocketAddr {
        self.addresses.values().next().expect("an address for probes").address()
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn probe(mut connection: TcpStream) -> String {
    let mut answer = String::new();
    connection.write_all(b"GET /readyz HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").unwrap();
    connection.read_to_string(&mut answer).unwrap();
    answer
}
