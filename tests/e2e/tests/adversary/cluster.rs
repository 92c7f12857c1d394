//! A local cluster in a home of its own.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use neonvm_e2e::client::KubeClient;
use serde_json::Value;
use tempfile::TempDir;

/// Stopped and removed when dropped.
pub(crate) struct Cluster {
    home: TempDir,
    programs: PathBuf,
}

impl Cluster {
    /// One with so many nodes.
    pub(crate) fn start(nodes: u8) -> Self {
        // Where a run that is broken off is cleaned up.
        let home = tempfile::Builder::new().prefix("home-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let cluster = Self { home, programs: neonvm_e2e::programs().unwrap() };
        let up = cluster.neonctl(&format!("local up --nodes {nodes}"));
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        cluster
    }

    fn directory(&self) -> PathBuf {
        self.home.path().join(".local/state/neonctl/local/local")
    }

    /// Runs `neonctl` as the administrator.
    pub(crate) fn neonctl(&self, arguments: &str) -> Output {
        let mut command = Command::new(self.programs.join("neonctl"));
        command.args(arguments.split_whitespace()).env_clear().env("HOME", self.home.path());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).stdin(Stdio::null());
        command.env("KUBECONFIG", self.directory().join("kubeconfig"));
        command.env("NEONCTL_TIMEOUT", "120s").env("NEONCTL_REQUEST_TIMEOUT", "60s").output().unwrap()
    }

    pub(crate) fn client(&self) -> KubeClient {
        KubeClient::new(self.directory().join("kubeconfig"))
    }

    /// The process of a service.
    pub(crate) fn pid(&self, service: &str) -> i64 {
        let text = std::fs::read_to_string(self.directory().join("services.json")).unwrap();
        let all: Value = serde_json::from_str(&text).unwrap();
        let found = all.as_array().unwrap().iter().find(|one| one["name"] == service);
        found.unwrap_or_else(|| panic!("no {service}: {text}"))["pid"].as_i64().unwrap()
    }

    /// The most memory that a service had, in KiB.
    pub(crate) fn peak_memory(&self, service: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid(service))).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.neonctl("local down --delete --timeout 5s");
    }
}
