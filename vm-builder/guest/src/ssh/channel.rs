//! One session channel: what the client prepared, and what runs.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use russh::server::Handle;
use russh::{ChannelId, Sig};
use rustix::process::{Pid, Signal};
use tokio::process::Command;

use super::authorized::Grant;
use super::pump::{self, Destination, Input, Source};
use super::shared::{Addresses, Shared, hang_up};
use super::terminal::{self, Size, Terminal, TerminalRequest};
use crate::config::Account;

/// Most variables a client may set.
const VARIABLES: usize = 64;
/// Longest value of one, in bytes.
const LONGEST_VALUE: usize = 4096;
/// This program, whatever has become of the file it was started from.
const OURSELVES: &str = "/proc/self/exe";
/// Directories in which root's programs are looked for.
const ROOT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/neonvm/bin";
/// The same for others.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/neonvm/bin";

/// What a client may request to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Shell,
    Exec(String),
    Sftp,
}

#[derive(Debug, Default)]
pub(super) struct Channel {
    variables: Vec<(String, String)>,
    terminal_request: Option<TerminalRequest>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Pid,
    input: Input,
    terminal: Option<Terminal>,
}

impl Channel {
    /// Takes a variable, if it is of those that change nothing but language.
    pub(super) fn set(&mut self, name: &str, value: &str) -> bool {
        let known = name == "LANG" || name.strip_prefix("LC_").is_some_and(is_plain);
        let taken = known && value.len() <= LONGEST_VALUE && !value.contains('\0');
        if taken && self.variables.len() < VARIABLES {
            self.variables.push((name.to_owned(), value.to_owned()));
        }
        taken
    }

    /// Accepts the request for a terminal, once.
    pub(super) fn request_terminal(&mut self, request: TerminalRequest) -> bool {
        let taken = self.terminal_request.is_none() && self.running.is_none();
        if taken {
            self.terminal_request = Some(request);
        }
        taken
    }

    pub(super) fn resize(&self, size: Size) -> bool {
        let terminal = self.running.as_ref().and_then(|running| running.terminal.as_ref());
        terminal.is_some_and(|terminal| terminal.resize(size))
    }

    pub(super) fn signal(&self, signal: &Sig, shared: &Shared) {
        let running = self.running.as_ref().filter(|running| shared.runs(running.child));
        if let (Some(running), Some(signal)) = (running, number(signal)) {
            let _ = rustix::process::kill_process_group(running.child, signal);
        }
    }

    /// Takes input; false if there is no room for it and never will be.
    pub(super) async fn input(&self, data: &[u8], shared: &Shared) -> bool {
        match &self.running {
            Some(running) => running.input.push(data, shared).await,
            None => true,
        }
    }

    pub(super) fn end_of_input(&self) {
        if let Some(running) = &self.running {
            running.input.end();
        }
    }

    /// The client has closed the channel.
    pub(super) fn hang_up(self, shared: &Shared) {
        if let Some(running) = self.running.filter(|running| shared.runs(running.child)) {
            hang_up(running.child);
        }
    }

    /// Starts the requested program, once a channel.
    pub(super) fn start(
        &mut self,
        account: &Account,
        grant: &Grant,
        request: Request,
        addresses: Addresses,
        shared: Arc<Shared>,
        client: (Handle, ChannelId),
    ) -> Result<(), String> {
        if self.running.is_some() {
            return Err("a second request on one channel".into());
        }
        let (request, original) = match (&grant.command, request) {
            (Some(forced), Request::Exec(asked)) => (Request::Exec(forced.clone()), Some(asked)),
            (Some(forced), _) => (Request::Exec(forced.clone()), None),
            (None, request) => (request, None),
        };
        let wanted = if request == Request::Sftp { None } else { self.terminal_request.take() };
        let opened = wanted.as_ref().map(|wanted| terminal::open(wanted, account.uid)).transpose();
        let opened = opened.map_err(|error| format!("open a terminal: {error}"))?;
        let mut command = command(account, &request, opened.is_some());
        command.envs(self.variables.drain(..)).envs(connection(addresses));
        command.envs(original.map(|asked| ("SSH_ORIGINAL_COMMAND", asked)));
        if let (Some(opened), Some(wanted)) = (&opened, &wanted) {
            let copy = || opened.line.try_clone().map(Stdio::from).map_err(|error| error.to_string());
            command.stdin(copy()?).stdout(copy()?).stderr(copy()?);
            command.env("TERM", &wanted.term).env("SSH_TTY", &opened.path);
        } else {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let mut child = command.spawn().map_err(|error| format!("start a session's program: {error}"))?;
        // The command keeps our copies of the terminal's line; with them open its end would never be seen.
        drop(command);
        let number = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let number = number.ok_or("the program ended before it started")?;
        let (terminal, destination, sources) = match opened {
            Some(opened) => {
                let sources = vec![(Source::Terminal(opened.reader), None)];
                (Some(opened.terminal), Destination::Terminal(opened.writer), sources)
            }
            None => {
                let output = child.stdout.take().map(|pipe| (Source::Stream(Box::new(pipe)), None));
                let error = child.stderr.take().map(|pipe| (Source::Stream(Box::new(pipe)), Some(1)));
                let destination =
                    child.stdin.take().map_or(Destination::None, |pipe| Destination::Stream(Box::new(pipe)));
                (None, destination, output.into_iter().chain(error).collect())
            }
        };
        shared.add(number);
        let input = pump::input(destination, Arc::clone(&shared));
        tokio::spawn(pump::run(child, number, sources, client, shared, input.clone()));
        self.running = Some(Running { child: number, input, terminal });
        Ok(())
    }
}

fn is_plain(name: &str) -> bool {
    name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The program with the user's environment; see [`super::login`] for the form.
fn command(account: &Account, request: &Request, tty: bool) -> Command {
    let shell = shell(account);
    let name = shell.as_deref().and_then(|shell| shell.rsplit('/').next()).unwrap_or_default();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let (program, arguments) = match (request, &shell) {
        (Request::Sftp, _) => (OURSELVES, words(&["neonvm-guest", "ssh", "--sftp"])),
        // A dash before the name makes it a login shell.
        (Request::Shell, Some(shell)) => (shell.as_str(), vec![format!("-{name}")]),
        (Request::Shell, None) => (OURSELVES, words(&["neonvm-guest", "shell"])),
        (Request::Exec(text), Some(shell)) => (shell.as_str(), words(&[name, "-c", text])),
        (Request::Exec(text), None) => (OURSELVES, words(&["neonvm-guest", "shell", "-c", text])),
    };
    let groups = std::iter::once(&account.gid).chain(&account.groups);
    let groups = groups.map(u32::to_string).collect::<Vec<_>>().join(",");
    let home = Some(Path::new(&account.home)).filter(|home| home.is_dir()).unwrap_or(Path::new("/"));
    let user = account.name.as_deref().unwrap_or_default();
    let mut command = Command::new(OURSELVES);
    command.args(["ssh", "--login"]).arg(account.uid.to_string()).arg(account.gid.to_string()).arg(groups);
    command.arg(if tty { "tty" } else { "-" }).arg(home).arg(program).args(arguments);
    command.env_clear();
    command.env("HOME", home).env("USER", user).env("LOGNAME", user);
    command.env("SHELL", shell.as_deref().unwrap_or("/neonvm/bin/sh"));
    command.env("PATH", if account.uid == 0 { ROOT_PATH } else { PATH });
    command
}

/// The user's shell, else the usual one; none if the image has none.
fn shell(account: &Account) -> Option<String> {
    let runs = |shell: &&str| {
        let path = Path::new(shell);
        path.is_absolute() && path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    };
    account.shell.as_deref().into_iter().chain(["/bin/sh"]).find(runs).map(str::to_owned)
}

fn connection(addresses: Addresses) -> Vec<(&'static str, OsString)> {
    let (Some(peer), Some(local)) = (addresses.peer, addresses.local) else { return Vec::new() };
    let ends = format!("{} {} {} {}", peer.ip(), peer.port(), local.ip(), local.port());
    let client = format!("{} {} {}", peer.ip(), peer.port(), local.port());
    vec![("SSH_CONNECTION", ends.into()), ("SSH_CLIENT", client.into())]
}

/// The signals of RFC 4254 §6.9, and those that OpenSSH's client sends besides.
fn number(signal: &Sig) -> Option<Signal> {
    Some(match signal {
        Sig::ABRT => Signal::ABORT,
        Sig::ALRM => Signal::ALARM,
        Sig::FPE => Signal::FPE,
        Sig::HUP => Signal::HUP,
        Sig::ILL => Signal::ILL,
        Sig::INT => Signal::INT,
        Sig::KILL => Signal::KILL,
        Sig::PIPE => Signal::PIPE,
        Sig::QUIT => Signal::QUIT,
        Sig::SEGV => Signal::SEGV,
        Sig::TERM => Signal::TERM,
        Sig::USR1 => Signal::USR1,
        Sig::Custom(name) if name == "USR2" => Signal::USR2,
        Sig::Custom(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_of_language_are_taken() {
        let mut channel = Channel::default();
        assert!(channel.set("LANG", "C.UTF-8") && channel.set("LC_ALL", "C"));
        for (name, value) in [("LD_PRELOAD", "x"), ("PATH", "x"), ("LC_A=B", "x"), ("LANG", "a\0b")] {
            assert!(!channel.set(name, value), "{name}");
        }
        assert_eq!(channel.variables.len(), 2);
    }
}
