//! A session with the SSH server of a guest, by a program of OpenSSH on this host.

use std::cell::Cell;
use std::convert::Infallible;
use std::io::IsTerminal as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use neonvm_api::VirtualMachine;
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::Words;
use super::agent::{Agent, Key};
use crate::args::place::Place;
use crate::commands::resource::{NamespaceClient, name_of};
use crate::commands::vm::exec;
use crate::connect::block_on;
use crate::env::Env;
use crate::error::{Code, Error, Result, reason};
use crate::report::Report;
use crate::settings::Settings;

/// How long the program may take to end after it was asked to.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// What ssh returns when there was no connection.
const NO_CONNECTION: u8 = 255;

/// Where to log in.
pub(crate) struct Door<'a> {
    pub(crate) name: &'a str,
    pub(crate) port: u16,
    /// Private key; none: the one that the cluster stores.
    pub(crate) identity: Option<&'a Path>,
}

/// A program of OpenSSH with the options that lead to the guest.
pub(crate) struct Client {
    /// Further options can be added.
    pub(crate) command: tokio::process::Command,
    key: Option<Key>,
    /// The program can write its own messages to a file: ssh alone.
    apart: bool,
}

impl Client {
    /// # Errors
    ///
    /// When the program is not installed, the VM does not run or its key cannot be read.
    pub(crate) fn open(env: &Env, settings: &Settings, program: &str, door: &Door<'_>) -> Result<Self> {
        let Some(path) = env.program(program) else {
            return Err(Error::new(Code::Failed, format!("{program} is not installed"))
                .hint("apt-get install openssh-client"));
        };
        let key = block_on(key(settings, door))?;
        let mut command = tokio::process::Command::new(path);
        if let Some(path) = door.identity {
            command.arg("-i").arg(path).args(["-o", "IdentitiesOnly=yes"]);
        }
        // The way to the guest is authenticated by the cluster from end to end; its host key is new at every start.
        for option in OPTIONS {
            command.args(["-o", option]);
        }
        let apart = program == "ssh";
        command.args(["-o", if apart { "LogLevel=INFO" } else { "LogLevel=ERROR" }]);
        command
            .arg("-o")
            .arg(format!("ProxyCommand={}", proxy(door.name, &door.port.to_string(), settings.place())?));
        Ok(Self { command, key, apart })
    }

    /// The report that runs the program with these last arguments; its exit code is that of the program.
    pub(crate) fn report(self, words: Vec<String>) -> Report {
        let Self { mut command, key, apart } = self;
        // In the background a read of the terminal would stop the program.
        let input = if is_in_background() { Stdio::null() } else { Stdio::inherit() };
        command.stdin(input).stdout(Stdio::inherit()).stderr(Stdio::inherit());
        let then = move || {
            block_on(async { Ok(session(command, words, key, apart).await) }).unwrap_or(NO_CONNECTION)
        };
        Report { then: Some(Box::new(then)), ..Report::text(String::new()) }
    }
}

/// Whether standard input is a terminal that another process group has, as that of a shell does after `command &`.
fn is_in_background() -> bool {
    let input = std::io::stdin();
    input.is_terminal()
        && rustix::termios::tcgetpgrp(&input).is_ok_and(|front| front != rustix::process::getpgrp())
}

/// Options of every session.
pub(crate) const OPTIONS: [&str; 3] =
    ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "ConnectTimeout=30"];

/// Runs ssh and passes on its own messages; Ctrl-C is for it, not for us.
async fn session(
    mut command: tokio::process::Command,
    place: Vec<String>,
    key: Option<Key>,
    apart: bool,
) -> u8 {
    let _held = signal(SignalKind::interrupt());
    let agent = match key.map(Agent::start).transpose() {
        Ok(agent) => agent,
        Err(error) => {
            let text = format!("error: cannot provide the key to ssh: {}\n", reason(&error));
            crate::render::errors(&crate::render::Shown::text(&text));
            return NO_CONNECTION;
        }
    };
    if let Some(agent) = &agent {
        let socket = agent.socket().display().to_string().replace('%', "%%");
        // The agent's key and no other.
        for option in
            [format!("IdentityAgent=\"{socket}\"").as_str(), "IdentityFile=none", "IdentitiesOnly=no"]
        {
            command.args(["-o", option]);
        }
    }
    command.kill_on_drop(true);
    let ssh = Cell::new(None);
    let mut talk = pin!(talk(command, place, &ssh, apart));
    let ended = tokio::select! {
        code = &mut talk => return code,
        never = lend(agent.as_ref()) => match never {},
        kind = came(SignalKind::terminate()) => kind,
        kind = came(SignalKind::hangup()) => kind,
    };
    // Ended from outside: ssh first, so that it leaves the terminal as it was. Nothing of the key or the agent stays behind.
    if let (Some(pid), Some(signal)) = (ssh.get(), Signal::from_named_raw(ended.as_raw_value())) {
        let _ = kill_process(pid, signal);
    }
    let _ = tokio::time::timeout(LAST_WORDS, talk).await;
    u8::try_from(128 + ended.as_raw_value()).unwrap_or(NO_CONNECTION)
}

async fn lend(agent: Option<&Agent>) -> Infallible {
    match agent {
        Some(agent) => agent.serve().await,
        None => std::future::pending().await,
    }
}

async fn came(kind: SignalKind) -> SignalKind {
    let came = match signal(kind) {
        Ok(mut signals) => signals.recv().await,
        Err(_) => None,
    };
    if came.is_none() {
        return std::future::pending().await;
    }
    kind
}

/// Runs ssh, whose process is noted in `ssh`, to its end.
async fn talk(
    mut command: tokio::process::Command,
    place: Vec<String>,
    ssh: &Cell<Option<Pid>>,
    apart: bool,
) -> u8 {
    // With less than LogLevel=INFO ssh does not report a closed connection; with it, it prints messages about the host key.
    let words = if apart { Words::open().ok() } else { None };
    if let Some(words) = &words {
        command.arg("-E").arg(words.path());
    }
    let Ok(mut child) = command.args(place).spawn() else { return NO_CONNECTION };
    ssh.set(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw));
    let status = match words {
        Some(mut words) => tokio::select! {
            status = child.wait() => {
                words.rest();
                status
            }
            never = words.pass_on() => match never {},
        },
        None => child.wait().await,
    };
    let Ok(status) = status else { return NO_CONNECTION };
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(NO_CONNECTION)
}

/// The VM's private key, unless another one is named.
async fn key(settings: &Settings, door: &Door<'_>) -> Result<Option<Key>> {
    let client = NamespaceClient::open(settings).await?;
    let machine = client.find(door.name).await?;
    exec::pod_of(&client, &machine)?;
    if door.identity.is_some() {
        return Ok(None);
    }
    let text = stored_key(&client, &machine).await?;
    let key = Key::parse(&text).ok_or_else(|| {
        Error::new(Code::Failed, "the stored key is not an unencrypted OpenSSH ed25519 key")
            .hint("use your own key with --identity")
    })?;
    Ok(Some(key))
}

/// The private key that the cluster stores for a VM, as a file of OpenSSH.
///
/// # Errors
///
/// [`Code::Conflict`] if the VM has none, and when its secret cannot be read.
pub(crate) async fn stored_key(client: &NamespaceClient, machine: &VirtualMachine) -> Result<String> {
    let secret = machine.status.as_ref().map(|status| status.ssh_secret_name.clone()).unwrap_or_default();
    if secret.is_empty() {
        return Err(Error::new(
            Code::Conflict,
            format!("{} has no SSH keys (spec.enableSSH is false)", name_of(machine)),
        )
        .hint("use your own key with --identity, or use neonctl vm console"));
    }
    let api: Api<Secret> = Api::namespaced(client.connection.client(), &client.namespace);
    let found = client.connection.within(&format!("cannot read secret {secret}"), api.get(&secret)).await?;
    let key = found.data.and_then(|mut data| data.remove("ssh-privatekey"));
    let key = key.ok_or_else(|| {
        Error::new(Code::Failed, format!("secret {secret} does not contain ssh-privatekey"))
    })?;
    String::from_utf8(key.0)
        .map_err(|_| Error::new(Code::Failed, format!("the key in secret {secret} is not text")))
}

/// This program, as the way to the guest.
pub(crate) fn proxy(name: &str, port: &str, place: &Place) -> Result<String> {
    let own = std::env::current_exe()
        .map_err(|error| Error::new(Code::Failed, "cannot find this program").cause(reason(&error)))?;
    let words = [own.display().to_string(), "vm".into(), "connect".into(), name.into(), port.into()];
    let words: Vec<String> = words.into_iter().chain(place.words()).collect();
    Ok(words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "))
}

/// A word as a shell reads it back. ssh replaces `%`.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''").replace('%', "%%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quote("it's 100%"), "'it'\\''s 100%%'");
    }
}
