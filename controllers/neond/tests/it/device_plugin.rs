//! The device plugin runs as its manifest says.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::cluster::manifests;
use crate::service::{arguments, containers};

#[test]
fn the_device_plugin_runs_as_its_manifest_says() {
    let all = manifests();
    let container = all
        .iter()
        .flat_map(|(_, workload)| containers(workload))
        .find(|container| container["name"] == "device-plugin")
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_neond"))
        .args(arguments(container))
        .arg("--kubelet-directory")
        .arg(directory.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut seen = Vec::new();
    // There is no kubelet here: it goes on trying.
    let waits = lines.inspect(|line| seen.push(line.clone())).any(|line| line.contains("cannot register"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(waits, "{seen:?}");
}
