//! A command for a container: in the network, the cgroup and the environment of the container, and in a root of the pod's own.
//!
//! Only what clients of the runner run is ours, and runs as the runner does: it speaks to the runner's socket.
//! Everything else is confined, see [`crate::confined`], wherever the node has the rights for it. A node without root
//! runs pods as the user that started it, and commands likewise.

use std::io;
use std::sync::Arc;

use neonvm_api::runner_pod;
use tokio::process::Child;
use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot;

use crate::confined::Root;
use crate::naming;
use crate::node::Node;
use crate::pod::{Handle, container};
use crate::process::Identity;
use crate::sys::{self, Mounts, ProcessPlacement};

/// Words after `neond runner` that need no more.
const OURS: [&str; 4] = ["console", "power-off", "statistics", "status"];
/// The word that a port follows.
const CONNECT: &str = "connect";

/// A command, to be given its streams.
pub(super) struct Command {
    pub(super) inner: std::process::Command,
    place: ProcessPlacement,
    root: Option<Root>,
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
        let environment = container::environment(node, handle, &pod, spec, &view.ip).await;
        let mut environment = environment.map_err(|problem| problem.message)?;
        let words = |error: io::Error| error.to_string();
        let mut place = node.place(handle).map_err(words)?;
        place.terminal = terminal;
        let root = match rustix::process::geteuid().is_root() && !is_ours {
            true => Some(root(handle, &view.ip)?),
            false => None,
        };
        if let Some(root) = &root {
            confine(&mut place, &mut environment, root.user);
        } else if matches!(place.mounts, Mounts::Own(_)) {
            let files = std::fs::File::open(format!("/proc/{}/ns/mnt", process.pid)).map_err(words)?;
            place.mounts = Mounts::Of(files.into());
        }
        // Checked after that was opened: the number still was the process's.
        if Identity::from_pid(process.pid) != Some(process) {
            return Err(not_running());
        }
        let program = if is_ours { node.executable.clone() } else { program.into() };
        let mut inner = std::process::Command::new(program);
        inner.args(arguments).env_clear().envs(environment);
        if terminal {
            inner.env("TERM", "xterm");
        }
        Ok(Self { inner, place, root })
    }

    /// Starts it. It is killed when what is returned is dropped.
    ///
    /// # Errors
    /// If its root cannot be made, or its program cannot be started.
    pub(super) async fn start(self) -> io::Result<Started> {
        let Self { mut inner, place, root } = self;
        sys::place(&mut inner, place);
        let Some(root) = root else { return Ok(Started { child: spawn(inner)?, keeper: None }) };
        let (sender, receiver) = oneshot::channel();
        let runtime = Runtime::current();
        // The thread ends with its work: no other work can find itself in a strange root.
        let inside = move || {
            let _runtime = runtime.enter();
            let started = root.enter().and_then(|()| {
                let keeper = spawn(root.keeper())?;
                Ok(Started { child: spawn(inner)?, keeper: Some(keeper) })
            });
            let _ = sender.send(started);
        };
        std::thread::Builder::new().name("exec".into()).spawn(inside)?;
        receiver.await.map_err(|_| io::Error::other("the thread that makes its root ended"))?
    }
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
        [] => Err("there is no command".to_owned()),
        _ => Err(format!(
            "only `{program} {runner}` with {}, or with {CONNECT} and a port may be run in the container, not {:?}",
            OURS.join(", "),
            words.join(" ")
        )),
    }
}

/// The root of a pod's commands.
fn root(handle: &Handle, ip: &str) -> Result<Root, String> {
    let ip = ip.parse().map_err(|_| "the pod has no address yet".to_owned())?;
    let directory = &handle.directory;
    Ok(Root {
        base: directory.exec(),
        pod: directory.root(),
        etc: directory.etc(),
        user: naming::qemu_user(ip),
    })
}

/// What is different for a command that is confined: paths of the host lead nowhere.
fn confine(place: &mut ProcessPlacement, environment: &mut Vec<(String, String)>, user: u32) {
    place.mounts = Mounts::Host;
    place.directory = c"/".to_owned();
    place.user = Some(user);
    let hosts = ["NEONVM_KERNEL", "NEONVM_INITRAMFS", "NEONVM_GUEST", "NEONVM_CGROUP", "NEONVM_QEMU_USER"];
    environment.retain(|(key, _)| !hosts.contains(&key.as_str()));
    for (key, value) in [(runner_pod::ROOT_VARIABLE, "/"), ("HOME", crate::confined::HOME)] {
        environment.push((key.to_owned(), value.to_owned()));
    }
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
        for word in ["console", "status", "statistics", "power-off", "connect 22", "connect 65535"] {
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
            "neond kvm-probe",
        ] {
            assert_eq!(ours(refused), None, "{refused}");
        }
    }
}
