//! A command for a container: in the network, the cgroup and the environment of the container.
//!
//! Only what clients of the runner run is ours, and runs as the runner does: it speaks to the runner's socket.
//! Everything else is in a root of its own as another user, see [`crate::confined`], wherever the node has the rights for it. A node without
//! root runs pods as the user that started it, and commands likewise.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use neonvm_api::runner_pod;
use tokio::process::Child;
use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot;

use crate::confined::{self, Root};
use crate::naming;
use crate::node::Node;
use crate::pod::container::View;
use crate::pod::{Handle, container, own_root};
use crate::process::{self, Identity};
use crate::sys::{self, Mounts, ProcessPlacement, User};

/// Words after `neond runner` that need no more.
const OURS: [&str; 7] = ["console", "disks", "power-off", "statistics", "status", "thaw", "wake"];
/// The word that a port follows.
const CONNECT: &str = "connect";

/// Processes and threads of the user of a command: far below what the pod may have, so that a command does not take them from the runner.
const MOST_PROCESSES: u64 = 1024;

/// A command, to be given its streams.
pub(super) struct Command {
    pub(super) inner: std::process::Command,
    place: ProcessPlacement,
    beside: Beside,
}

/// Which other processes a command is among.
enum Beside {
    /// Those of the node.
    Host,
    /// Those of its own root.
    Own(Root),
    /// Those of the runner: its namespace of processes.
    Runner(OwnedFd),
}

/// A command that runs, and what keeps its namespace: all that is in there ends with it.
pub(super) struct Started {
    pub(super) child: Child,
    pub(super) keeper: Option<Child>,
}

impl Command {
    /// The command of these words in a container of a pod.
    ///
    /// # Errors
    /// Why there can be none, for people.
    pub(super) async fn new(
        node: &Node,
        handle: &Handle,
        name: &str,
        argv: &[String],
        terminal: bool,
    ) -> Result<Self, String> {
        let is_ours = is_ours(argv)?;
        let (program, arguments) = argv.split_first().ok_or("there is no command")?;
        let view = handle.view.borrow().clone();
        let not_running = || format!("container {name} is not running");
        let process = view.containers.get(name).and_then(|container| container.process);
        let process = process.ok_or_else(not_running)?;
        let pod = Arc::clone(&handle.pod.borrow());
        let spec = container::spec(&pod, name).ok_or_else(|| format!("there is no container {name}"))?;
        let words = |error: io::Error| error.to_string();
        if rustix::process::geteuid().is_root() && !sys::can_make_roots() && !is_ours {
            return Err(
                "a command needs a root of its own, for which this node needs CAP_SYS_ADMIN".to_owned()
            );
        }
        // The runner of a pod of an earlier version is root, without a root of its own.
        let runner = process::user_of(process.pid).filter(|user| *user != 0 && sys::can_make_roots());
        let is_confined = sys::can_make_roots() && !is_ours;
        let seen = if is_confined || runner.is_some() { View::Own } else { View::Host };
        let environment = container::environment(node, handle, &pod, spec, &view.ip, seen).await;
        let mut environment = environment.map_err(|problem| problem.message)?;
        let open = |name: &str| -> Result<OwnedFd, String> {
            Ok(std::fs::File::open(format!("/proc/{}/ns/{name}", process.pid)).map_err(words)?.into())
        };
        let mut place;
        let beside = if is_confined {
            place = node.place(handle).map_err(words)?;
            let root = root(handle, &view.ip)?;
            place.user =
                Some(User { id: root.user, groups: Vec::new(), most_processes: Some(MOST_PROCESSES) });
            confine(&mut environment);
            Beside::Own(root)
        } else if let Some(user) = runner {
            place = node.place(handle).map_err(words)?;
            place.mounts = Mounts::Of { namespace: open("mnt")?, own_root: true };
            place.user = Some(own_root::becomes(user));
            Beside::Runner(open("pid")?)
        } else {
            place = node.place_on_host(handle).map_err(words)?;
            if sys::can_make_roots() {
                place.mounts = Mounts::Of { namespace: open("mnt")?, own_root: false };
                place.without_rights = false;
            }
            Beside::Host
        };
        place.terminal = terminal;
        // Checked after that was opened: the number still was the process's.
        if Identity::from_pid(process.pid) != Some(process) {
            return Err(not_running());
        }
        let program = match &beside {
            Beside::Runner(_) => confined::PROGRAM.into(),
            Beside::Host if is_ours => node.executable.clone(),
            _ => program.into(),
        };
        let mut inner = std::process::Command::new(program);
        inner.args(arguments).env_clear().envs(environment);
        if terminal {
            inner.env("TERM", "xterm");
        }
        Ok(Self { inner, place, beside })
    }

    /// Starts it. It is killed when what is returned is dropped.
    ///
    /// # Errors
    /// If its root cannot be made, or its program cannot be started.
    pub(super) async fn start(self) -> io::Result<Started> {
        let Self { mut inner, place, beside } = self;
        sys::place(&mut inner, place);
        if matches!(beside, Beside::Host) {
            return Ok(Started { child: spawn(inner)?, keeper: None });
        }
        let (sender, receiver) = oneshot::channel();
        let runtime = Runtime::current();
        // The thread ends with its work: no other work can find itself in a strange root.
        let inside = move || {
            let _runtime = runtime.enter();
            let _ = sender.send(within(beside, inner));
        };
        std::thread::Builder::new().name("exec".into()).spawn(inside)?;
        receiver.await.map_err(|_| io::Error::other("the thread that makes its root ended"))?
    }
}

/// Starts it from this thread, which must end soon.
fn within(beside: Beside, command: std::process::Command) -> io::Result<Started> {
    let keeper = match beside {
        Beside::Host => None,
        Beside::Own(root) => {
            root.enter()?;
            Some(spawn(root.keeper())?)
        }
        Beside::Runner(processes) => {
            sys::join_processes(&processes)?;
            None
        }
    };
    Ok(Started { child: spawn(command)?, keeper })
}

/// Whether a command is one of ours. Any other use of our program is refused: it is not in the container.
fn is_ours(argv: &[String]) -> Result<bool, String> {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    let [program, runner] = runner_pod::COMMAND;
    match words.as_slice() {
        [first, ..] if *first != program => Ok(false),
        [_, second, word] if *second == runner && OURS.contains(word) => Ok(true),
        [_, second, CONNECT, port] if *second == runner && port.parse::<u16>().is_ok_and(|port| port > 0) => {
            Ok(true)
        }
        [_, second, "freeze", "--seconds", seconds, rest @ ..]
            if *second == runner
                && seconds.parse::<u32>().is_ok()
                && matches!(rest, [] | ["--root-disk"]) =>
        {
            Ok(true)
        }
        [] => Err("there is no command".to_owned()),
        _ => Err(format!(
            "only `{program} {runner}` with {}, with {CONNECT} and a port, or with freeze --seconds and a number may be run in the container, not {:?}",
            OURS.join(", "),
            words.join(" ")
        )),
    }
}

/// The root of a pod's commands.
fn root(handle: &Handle, ip: &str) -> Result<Root, String> {
    let ip = ip.parse().map_err(|_| "the pod has no address yet".to_owned())?;
    let root = own_root::of_command(handle, naming::command_user(ip));
    root.map_err(|error| format!("the volumes of the pod are not known: {error}"))
}

/// What is the runner's alone is not named to a command.
fn confine(environment: &mut Vec<(String, String)>) {
    environment.retain(|(key, _)| !["NEONVM_KERNEL", "NEONVM_GUEST"].contains(&key.as_str()));
}

fn spawn(command: std::process::Command) -> io::Result<Child> {
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true).spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(words: &str) -> Option<bool> {
        is_ours(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).ok()
    }

    #[test]
    fn only_what_clients_of_the_runner_run_is_ours() {
        for word in [
            "console",
            "status",
            "statistics",
            "power-off",
            "wake",
            "thaw",
            "disks",
            "freeze --seconds 30",
            "freeze --seconds 4 --root-disk",
            "connect 22",
            "connect 65535",
        ] {
            assert_eq!(ours(&format!("neond runner {word}")), Some(true), "{word}");
        }
        for other in ["sh -c neond", "/usr/bin/neond local", "./neond runner status", "cat /etc/passwd"] {
            assert_eq!(ours(other), Some(false), "{other}");
        }
        for refused in [
            "",
            "neond",
            "neond local",
            "neond kubelet --name x",
            "neond runner",
            "neond runner --root / status",
            "neond runner status --root /",
            "neond runner connect",
            "neond runner connect 0",
            "neond runner connect 22 --root /",
            "neond runner connect --help",
            "neond runner freeze --seconds x",
            "neond runner freeze --seconds 3 --root /",
            "neond kvm-probe",
        ] {
            assert_eq!(ours(refused), None, "{refused}");
        }
    }
}
