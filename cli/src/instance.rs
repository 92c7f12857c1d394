//! A local cluster as it lies on this machine: its directory, its process, its address.
//!
//! `<root>/<name>/` holds `kubeconfig`, `process.json`, `log/local.log` and the server's own state.

mod pid;

pub(crate) use pid::Process;

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use neonvm_kit::private;
use neonvm_kit::reserve::Reserve;
use serde_json::Value;

use crate::args::local::{Root, Which};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::settings::{Settings, is_cluster_name};

/// Time between two looks at a process that is to end.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running(Process),
    Ended(Process),
    /// It was stopped, or never started.
    Stopped,
}

pub(crate) fn root(env: &Env, settings: &Settings, flags: &Root) -> Result<PathBuf> {
    let flag = flags.data_dir.as_ref().map(|path| path.display().to_string());
    let root = match settings.value("data-dir", flag.as_deref())? {
        Some(path) => PathBuf::from(path),
        None => env.directory("XDG_STATE_HOME", ".local/state").join("neonctl/local"),
    };
    std::path::absolute(&root).map_err(|error| Error::file("find", &root, &error))
}

pub(crate) fn named(env: &Env, settings: &Settings, which: &Which) -> Result<Instance> {
    let name = settings.value("name", which.name.as_deref())?.unwrap_or_default();
    Ok(Instance { directory: root(env, settings, &which.root)?.join(&name), name })
}

pub(crate) fn all(root: &Path) -> Vec<Instance> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut found: Vec<Instance> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok().filter(|name| is_cluster_name(name))?;
            Some(Instance { name, directory: entry.path() })
        })
        .filter(Instance::exists)
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// The cluster of this host at this address; none: it is another's.
pub(crate) fn of_server(env: &Env, settings: &Settings, server: &str) -> Option<Instance> {
    let root = root(env, settings, &Root::default()).ok()?;
    all(&root).into_iter().find(|instance| instance.server().as_deref() == Some(server))
}

impl Instance {
    pub(crate) fn exists(&self) -> bool {
        self.process_file().exists()
            || self.kubeconfig().exists()
            || self.directory.join("state.redb").exists()
    }

    pub(crate) fn demand(&self) -> Result<()> {
        if self.exists() {
            return Ok(());
        }
        let others = self.directory.parent().map(all).unwrap_or_default();
        let hint = match others.first() {
            Some(other) => format!("did you mean {:?}? list the clusters: neonctl local list", other.name),
            None => "start one: neonctl local up".to_owned(),
        };
        Err(Error::new(Code::NotFound, format!("local cluster {:?} not found", self.name)).hint(hint))
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.log_of("local")
    }

    pub(crate) fn log_of(&self, service: &str) -> PathBuf {
        self.directory.join("log").join(format!("{service}.log"))
    }

    /// Services that have logged, by name; the supervisor is `local`.
    pub(crate) fn logged(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.join("log")).into_iter().flatten().flatten();
        let names =
            entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".log")?.to_owned()));
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    fn process_file(&self) -> PathBuf {
        self.directory.join("process.json")
    }

    /// `https://…`, from its kubeconfig.
    pub(crate) fn server(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.kubeconfig()).ok()?;
        let config: Value = serde_json::from_str(&text).ok()?;
        Some(config.pointer("/clusters/0/cluster/server")?.as_str()?.to_owned())
    }

    pub(crate) fn last_port(&self) -> Option<u16> {
        self.server()?.rsplit_once(':')?.1.parse().ok()
    }

    pub(crate) fn state(&self) -> State {
        let text = std::fs::read_to_string(self.process_file()).unwrap_or_default();
        match serde_json::from_str::<Process>(&text) {
            Ok(process) if process.is_alive() => State::Running(process),
            Ok(process) => State::Ended(process),
            Err(_) => State::Stopped,
        }
    }

    pub(crate) fn remember(&self, process: &Process) -> Result<()> {
        let text = serde_json::to_string(process).unwrap_or_default();
        let path = self.process_file();
        Reserve::from_directory(&self.directory)
            .lend(|| private::replace(&path, text.as_bytes()))
            .map_err(|error| Error::file("write", &path, &error))
    }

    pub(crate) fn forget_process(&self) {
        // Gone already is as good.
        let _ = std::fs::remove_file(self.process_file());
    }

    /// Keeps two commands from starting or stopping it at the same time, until the file is dropped.
    pub(crate) fn lock(&self) -> Result<File> {
        let path = self.directory.join("lock");
        let failed = |error: std::io::Error| Error::file("lock", &path, &error);
        let file = private::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        file.lock().map_err(failed)?;
        Ok(file)
    }

    /// Stops its process: asks, waits, then kills. True if it ran.
    pub(crate) fn stop(&self, limit: Duration) -> Result<bool> {
        let State::Running(process) = self.state() else {
            self.forget_process();
            return Ok(false);
        };
        process.signal(rustix::process::Signal::TERM);
        let deadline = Instant::now() + limit;
        while process.is_alive() {
            if Instant::now() > deadline {
                process.signal(rustix::process::Signal::KILL);
                // A killed process is gone as soon as the kernel has cleaned up.
                let last = Instant::now() + Duration::from_secs(10);
                while process.is_alive() && Instant::now() < last {
                    std::thread::sleep(LOOK_AGAIN);
                }
                break;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        if process.is_alive() {
            return Err(Error::new(
                Code::Failed,
                format!("process {} of {:?} does not terminate", process.pid, self.name),
            ));
        }
        self.forget_process();
        Ok(true)
    }

    /// Waits for the services of a supervisor that was killed, at most so long. The kernel ends them with it, each in its own time;
    /// until then they have the port and the state.
    pub(crate) fn outlast(&self, supervisor: &Process, limit: Duration) {
        let text = std::fs::read_to_string(self.directory.join("services.json")).unwrap_or_default();
        let record: Value = serde_json::from_str(&text).unwrap_or_default();
        let process = |service: &Value| {
            let pid = i32::try_from(service.get("pid")?.as_i64()?).ok()?;
            Some(supervisor.beside(pid, service.get("startTime")?.as_u64()?))
        };
        let left: Vec<Process> = record.as_array().into_iter().flatten().filter_map(process).collect();
        let deadline = Instant::now() + limit;
        while !left.iter().all(Process::is_gone) && Instant::now() < deadline {
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    pub(crate) fn last_lines(&self, count: usize) -> Vec<String> {
        self.last_lines_of("local", count)
    }

    pub(crate) fn last_lines_of(&self, service: &str, count: usize) -> Vec<String> {
        let text = std::fs::read(self.log_of(service)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let mut lines: Vec<String> = text.lines().rev().take(count).map(str::to_owned).collect();
        lines.reverse();
        lines
    }
}

pub(crate) fn port_is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// The process that listens on a port, as far as we may see: `name (pid 12)`.
pub(crate) fn port_owner(port: u16) -> Option<String> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .flat_map(|table| listening(&table, port))
        .collect();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes
        .filter(|entry| entry.file_name().to_string_lossy().chars().all(|c| c.is_ascii_digit()))
        .find(|entry| holds(&entry.path(), &inodes))
        .map(|entry| {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            format!("{} (pid {})", name.trim(), entry.file_name().to_string_lossy())
        })
}

/// Inodes of the sockets that listen on a port, from a table such as `/proc/net/tcp`.
fn listening(table: &str, port: u16) -> Vec<String> {
    let wanted = format!(":{port:04X}");
    table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.get(1).is_some_and(|address| address.ends_with(&wanted)))
        .filter(|fields| fields.get(3) == Some(&"0A"))
        .filter_map(|fields| fields.get(9).map(|&inode| inode.to_owned()))
        .collect()
}

fn holds(process: &Path, inodes: &[String]) -> bool {
    let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    files
        .filter_map(|file| std::fs::read_link(file.path()).ok())
        .filter_map(|target| {
            let target = target.to_string_lossy().into_owned();
            Some(target.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())
        })
        .any(|inode| inodes.contains(&inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_directory_names_and_nothing_else() {
        for good in ["local", "a", "dev-2"] {
            assert!(is_cluster_name(good), "{good}");
        }
        for bad in ["", "..", "a/b", "-a", "a-", "A", "a b", "ä"] {
            assert!(!is_cluster_name(bad), "{bad}");
        }
    }
}

#[cfg(test)]
mod port_tests {
    use super::*;

    #[test]
    fn the_owner_of_a_port_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!port_is_free(port));
        assert!(port_owner(port).unwrap().ends_with(&format!("(pid {})", std::process::id())));
    }
}
