//! A running local cluster of one test, and the processes that belong to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Output;

use neonvm_e2e::client::KubeClient;
use neonvm_test_support::eventually_blocking;
use serde_json::Value;

use crate::home::Home;

/// Stopped and removed when dropped.
pub(crate) struct Cluster(Home);

/// A process: its number, and the service that it is, or the name of its program.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) role: String,
}

impl Cluster {
    /// One with so many nodes, whose agents answer.
    pub(crate) fn start(nodes: u8) -> Self {
        Self::in_home(Home::new(), nodes)
    }

    /// One whose user has this home.
    pub(crate) fn in_home(home: Home, nodes: u8) -> Self {
        Self::started_with(home, nodes, "")
    }

    /// One that was started by a shell with these redirections.
    pub(crate) fn started_with(home: Home, nodes: u8, redirections: &str) -> Self {
        let cluster = Self(home);
        let script = format!("exec \"$0\" local up --nodes {nodes} --cpus 4 --accel tcg {redirections}");
        let up = cluster.0.shell(&script);
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        if nodes > 0 {
            eventually_blocking(
                || "an agent that answers".to_owned(),
                || cluster.neonctl("agent inspect").status.success().then_some(()),
            );
        }
        cluster
    }

    pub(crate) const fn home(&self) -> &Home {
        &self.0
    }

    /// Where its state and its logs are.
    pub(crate) fn directory(&self) -> PathBuf {
        self.0.cluster()
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.0.cluster().join("kubeconfig")
    }

    /// Runs `neonctl` as the administrator.
    pub(crate) fn neonctl(&self, arguments: &str) -> Output {
        self.0.run(&format!("{arguments} --kubeconfig {}", self.kubeconfig().display()))
    }

    pub(crate) fn client(&self) -> KubeClient {
        KubeClient::new(self.kubeconfig())
    }

    fn services(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.0.cluster().join("services.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// The process of a service.
    pub(crate) fn process(&self, service: &str) -> Process {
        let found = self.services().into_iter().find(|one| one["name"] == service);
        let pid = found.and_then(|one| one["pid"].as_u64()).unwrap_or_else(|| panic!("no {service}"));
        Process { pid: u32::try_from(pid).unwrap(), role: service.to_owned() }
    }

    /// The processes of all services, in their order.
    pub(crate) fn all_services(&self) -> Vec<Process> {
        let names = self.services().into_iter().map(|one| one["name"].as_str().unwrap().to_owned());
        names.map(|name| self.process(&name)).collect()
    }

    /// Services with their descendants: node and supervisor are among the former, runners among the latter.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let services = self.services();
        let pid = |service: &Value| service["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        let mut own: BTreeSet<u32> = services.iter().filter_map(pid).collect();
        let home = self.0.path().display().to_string();
        let all = all_processes();
        // Runners are in sessions of their own, but their files are in the cluster's directory.
        own.extend(all.keys().filter(|pid| command_line(**pid).iter().any(|word| word.contains(&home))));
        while let Some((pid, _)) =
            all.iter().find(|(pid, parent)| own.contains(*parent) && !own.contains(*pid))
        {
            own.insert(*pid);
        }
        own.into_iter().filter_map(|pid| Some(Process { pid, role: role(pid)? })).collect()
    }
}

impl Process {
    /// The most memory that it ever had, in KiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

/// All processes, each with its parent.
fn all_processes() -> BTreeMap<u32, u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parent = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    pids.filter_map(|pid| Some((pid, parent(pid)?))).collect()
}

fn command_line(pid: u32) -> Vec<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The service of a `neond` process, or the name of another program; none if the process is gone.
fn role(pid: u32) -> Option<String> {
    let line = command_line(pid);
    let program = line.first()?.rsplit('/').next().filter(|name| !name.is_empty())?.to_owned();
    // A runner has a name of its own, and is the same program.
    if ["neond", "neonvm-runner"].contains(&program.as_str()) { line.get(1).cloned() } else { Some(program) }
}
