//! Processes that outlive the node: started in separate sessions, written down by themselves, found again by number and
//! start time, waited for through a pidfd.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, pidfd_send_signal, waitid,
};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

use crate::confined::Root;
use crate::sys::{self, ProcessPlacement};

/// A process for good: numbers are used again, start times are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) pid: i32,
    /// Clock ticks since the host's start.
    pub(crate) start: u64,
}

impl Identity {
    /// From a line of `/proc/PID/stat`.
    pub(crate) fn parse(stat: &str) -> Option<Self> {
        let (head, tail) = stat.rsplit_once(')')?;
        let pid = head.split_once(' ')?.0.parse().ok()?;
        Some(Self { pid, start: tail.split_whitespace().nth(19)?.parse().ok()? })
    }

    /// What the process at a number is now.
    pub(crate) fn from_pid(pid: i32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// What a process wrote down about itself before its program ran. None: it never got that far.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(path).ok()?)
    }
}

/// What to run.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// All of the environment.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) output: File,
    pub(crate) place: ProcessPlacement,
    /// In which it starts, as the first process there.
    pub(crate) root: Option<Root>,
}

/// Starts a process. It is not waited for here: see [`Process::wait`]. Blocks until its program runs.
pub(crate) fn launch(mut launch: Launch) -> io::Result<Identity> {
    let pid = match launch.root.take() {
        None => start(launch)?,
        Some(root) => {
            let inside = move || root.enter().and_then(|()| start(launch));
            // The thread ends with its work: no other work can find itself in a strange root.
            let thread = std::thread::Builder::new().name("pod".into()).spawn(inside)?;
            thread.join().map_err(|_| io::Error::other("the thread that makes its root ended"))??
        }
    };
    // Not reaped yet: the number is still the child's.
    Identity::from_pid(pid).ok_or_else(|| io::Error::other("the process is not in /proc"))
}

/// The number by which this process knows it.
fn start(launch: Launch) -> io::Result<i32> {
    let mut command = Command::new(&launch.program);
    command.args(&launch.arguments).env_clear().envs(launch.environment).stdin(Stdio::null());
    command.stdout(launch.output.try_clone()?).stderr(launch.output);
    sys::place(&mut command, launch.place);
    let child = command.spawn()?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

/// The user of a process.
pub(crate) fn user_of(pid: i32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// How a process ended, as far as it can be determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Code(i32),
    Signal(i32),
    /// It was another process's child.
    Unknown,
}

/// A process that can be waited for and signalled without mistaking another one for it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) identity: Identity,
    pid: Pid,
    fd: AsyncFd<OwnedFd>,
}

impl Process {
    /// Finds a process. None: it is gone.
    pub(crate) fn open(identity: Identity) -> io::Result<Option<Self>> {
        let Some(pid) = Pid::from_raw(identity.pid) else { return Ok(None) };
        let fd = match pidfd_open(pid, PidfdFlags::NONBLOCK) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Checked after the descriptor was opened: the process with this number is the one of the descriptor.
        if Identity::from_pid(identity.pid) != Some(identity) {
            return Ok(None);
        }
        Ok(Some(Self { identity, pid, fd: crate::sys::watched(fd)? }))
    }

    pub(crate) async fn wait(&self) -> Outcome {
        loop {
            // An error here means that the runtime is shutting down: no caller gets the answer.
            let Ok(mut ready) = self.fd.readable().await else { return std::future::pending().await };
            if has_ended(self.fd.get_ref()) {
                break;
            }
            ready.clear_ready();
        }
        // As long as it is not reaped, its group's number is its own: what it left behind there goes with it.
        if Identity::from_pid(self.identity.pid) == Some(self.identity) {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        match waitid(WaitId::PidFd(std::os::fd::AsFd::as_fd(self.fd.get_ref())), options) {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Outcome::Code(code),
                (None, Some(signal)) => Outcome::Signal(signal),
                (None, None) => Outcome::Unknown,
            },
            Ok(None) | Err(_) => Outcome::Unknown,
        }
    }

    /// Requests the process itself, and nothing it started, to end.
    pub(crate) fn terminate(&self) {
        if let Err(error) = pidfd_send_signal(self.fd.get_ref(), Signal::TERM) {
            tracing::debug!(%error, pid = self.identity.pid, "cannot be asked to end");
        }
    }

    pub(crate) fn kill(&self) {
        // It leads its group: as long as it is not reaped, the group's number is its own.
        if Identity::from_pid(self.identity.pid) == Some(self.identity) {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        let _ = pidfd_send_signal(self.fd.get_ref(), Signal::KILL);
    }
}

/// Whether the process of a pidfd has ended. The runtime's word for it may come too early.
fn has_ended(fd: &OwnedFd) -> bool {
    let mut fds = [rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN)];
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(&mut fds, Some(&at_once)), Ok(count) if count > 0)
}

/// Number of this start of the host: processes of another start are gone.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Record;

    fn shell(script: &str, directory: &Path) -> Identity {
        let path = directory.join("pid");
        let record = Record::new(File::create(&path).unwrap()).unwrap();
        let place = ProcessPlacement { record: Some(record), ..ProcessPlacement::default() };
        let launched = launch(Launch {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![],
            output: File::create(directory.join("log")).unwrap(),
            place,
            root: None,
        });
        let identity = launched.unwrap();
        assert_eq!(Identity::read(&path), Some(identity));
        identity
    }

    #[tokio::test]
    async fn processes_are_waited_for_and_killed() {
        let directory = tempfile::tempdir().unwrap();
        let open = |identity| Process::open(identity).unwrap().unwrap();
        assert_eq!(open(shell("exit 7", directory.path())).wait().await, Outcome::Code(7));
        let process = open(shell("sleep 1000 & wait", directory.path()));
        process.kill();
        assert_eq!(process.wait().await, Outcome::Signal(9));
        process.kill();
        assert!(Process::open(process.identity).unwrap().is_none());
        let own = Identity::from_pid(std::process::id().cast_signed()).unwrap();
        assert!(Process::open(Identity { start: own.start + 1, ..own }).unwrap().is_none());
    }

    #[test]
    fn names_of_programs_do_not_confuse() {
        let stat = format!("12 (a) b ( c)) S {}4711 0", "0 ".repeat(18));
        assert_eq!(Identity::parse(&stat), Some(Identity { pid: 12, start: 4711 }));
        assert_eq!(Identity::parse("12 (a"), None);
        assert_eq!(Identity::parse(""), None);
    }
}
