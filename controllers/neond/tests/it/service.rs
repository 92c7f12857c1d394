//! A container of a manifest, started as a process.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use neonvm_kit::port::Reserved;
use serde_json::Value;

pub(crate) struct Service {
    child: Child,
    log: PathBuf,
    /// Flag → the address it was given here.
    pub(crate) addresses: BTreeMap<String, Reserved>,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Containers of `neond` in a workload.
pub(crate) fn containers(workload: &Value) -> Vec<&Value> {
    let all = workload.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    all.into_iter().flatten().filter(|container| container["command"][0] == "neond").collect()
}

/// Name of the pod where a test has one of each.
const POD: &str = "pod-0";

/// Variables as the kubelet would set them, for a pod on node n1.
fn environment(container: &Value, pod: &str) -> BTreeMap<String, String> {
    let all = container["env"].as_array().into_iter().flatten();
    all.map(|one| {
        let value = match one.pointer("/valueFrom/fieldRef/fieldPath").and_then(Value::as_str) {
            Some("metadata.name") => pod,
            Some("spec.nodeName") => "n1",
            Some("status.podIP" | "status.hostIP") => "127.0.0.1",
            None => one["value"].as_str().unwrap(),
            other => panic!("{other:?} of {one}"),
        };
        (one["name"].as_str().unwrap().to_owned(), value.to_owned())
    })
    .collect()
}

pub(crate) fn arguments(container: &Value) -> Vec<String> {
    arguments_of(container, POD)
}

fn arguments_of(container: &Value, pod: &str) -> Vec<String> {
    let environment = environment(container, pod);
    let words = |key: &str| container[key].as_array().cloned().unwrap_or_default();
    let all = words("command").into_iter().skip(1).chain(words("args"));
    all.map(|word| {
        let word = word.as_str().unwrap().to_owned();
        environment.iter().fold(word, |word, (name, value)| word.replace(&format!("$({name})"), value))
    })
    .collect()
}

pub(crate) fn listening(arguments: &[String]) -> Vec<(String, std::net::SocketAddr)> {
    let parse = |word: &String| {
        let (flag, value) = word.split_once('=')?;
        Some((flag.to_owned(), value.parse().ok()?))
    };
    arguments.iter().filter_map(parse).collect()
}

/// Makes a process listen on other ports, which are reserved for it: flag → address.
pub(crate) fn listen_here(arguments: &mut [String]) -> BTreeMap<String, Reserved> {
    let mut addresses = BTreeMap::new();
    for (flag, old) in listening(arguments) {
        let own = Reserved::loopback().unwrap();
        for word in arguments.iter_mut().filter(|word| **word == format!("{flag}={old}")) {
            *word = format!("{flag}={}", own.address());
        }
        addresses.insert(flag, own);
    }
    addresses
}

impl Service {
    /// Starts it with `more` flags; where it listens, on other ports that are reserved for it.
    pub(crate) fn start(container: &Value, kubeconfig: &Path, more: &[&str]) -> Self {
        Self::start_in(POD, container, kubeconfig, more)
    }

    /// As [`Service::start`], in a pod of this name.
    pub(crate) fn start_in(pod: &str, container: &Value, kubeconfig: &Path, more: &[&str]) -> Self {
        let mut arguments = arguments_of(container, pod);
        let addresses = listen_here(&mut arguments);
        // The network of pods is not here: the server calls the webhooks where they listen.
        for word in arguments.iter_mut().filter(|word| word.starts_with("--webhook-service=")) {
            *word = "--webhook-listener".to_owned();
        }
        let log = kubeconfig.with_extension(format!("{pod}.log"));
        let output = File::create(&log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_neond"))
            .args(&arguments)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(more)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(environment(container, pod))
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        Self { child, log, addresses }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Kill -9.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}
