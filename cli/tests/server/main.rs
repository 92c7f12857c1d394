//! `neonctl` against a real API server. It has no kubelet and no controllers: the tests simulate what those write.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod cluster;
mod create;
mod disks;
mod inspect;
mod install;
mod podautoscaler;
mod scale;
mod snapshots;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use kube::Client;
use serde_json::{Value, json};

/// Without PATH there is no ssh, so that nothing enters a guest.
fn command(kubeconfig: &Path, home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neonctl"));
    command.args(arguments).env_clear().env("HOME", home).env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
    command
}

/// Exit code, standard output, standard error.
async fn run(kubeconfig: &Path, arguments: &[&str]) -> (i32, String, String) {
    let home = tempfile::tempdir().unwrap();
    let mut command = command(kubeconfig, home.path(), arguments);
    ended(&tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap())
}

fn ended(output: &Output) -> (i32, String, String) {
    let text = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

async fn get(client: &Client, path: &str) -> Option<Value> {
    client.request(http::Request::get(path).body(Vec::new()).unwrap()).await.ok()
}

async fn patch(client: &Client, path: &str, change: &Value) -> Option<Value> {
    let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
    client.request(request.body(change.to_string().into_bytes()).unwrap()).await.ok()
}

async fn delete(client: &Client, path: &str) {
    let _: Value = client.request(http::Request::delete(path).body(Vec::new()).unwrap()).await.unwrap();
}

/// A VM in the namespace `default`.
fn vm(name: &str, guest: &Value) -> Value {
    json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"guest": guest}})
}
