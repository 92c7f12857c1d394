//! The device plugin runs as its manifest says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use neonvm_port::Reserved;

use crate::cluster::manifests;
use crate::service::{arguments, containers, listening};

#[test]
fn the_device_plugin_runs_as_its_manifest_says() {
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
    let mut child = Command::new(env!("CARGO_BIN_EXE_neond"))
        .args(arguments)
        .arg("--kubelet-directory")
        .arg(directory.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut seen = Vec::new();
    // There is no kubelet here: it goes on trying.
    let waits = lines.inspect(|line| seen.push(line.clone())).any(|line| line.contains("cannot register"));
    let mut answer = String::new();
    let mut connection = TcpStream::connect(probes.address()).unwrap();
    connection.write_all(b"GET /readyz HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").unwrap();
    connection.read_to_string(&mut answer).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(waits, "{seen:?}");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("neonvm/tun"), "{answer}");
}
