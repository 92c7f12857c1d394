//! `vm ssh`

mod agent;
mod words;

use super::exec;
use std::cell::Cell;
use std::convert::Infallible;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use self::agent::{Agent, Key};
use self::words::Words;
use crate::args::resource::NamespaceArgs;
use crate::args::vm::Ssh;
use crate::commands::resource::client::NamespaceClient;
use crate::connect::block_on;
use crate::env::Env;
use crate::error::{Code, Error, Result, reason};
use crate::report::Report;
use crate::settings::Settings;

/// How long ssh may take to end after it was asked to.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// What ssh returns when there was no connection.
const NO_CONNECTION: u8 = 255;

/// Logs in, or runs a command.
pub(in crate::commands) fn run(env: &Env, settings: &Settings, args: &Ssh) -> Result<Report> {
    let Some(program) = env.program("ssh") else {
        return Err(Error::new(Code::Failed, "ssh is not installed").hint("apt-get install openssh-client"));
    };
    let key = block_on(key(settings, args))?;
    let mut command = tokio::process::Command::new(program);
    if let Some(path) = &args.identity {
        command.arg("-i").arg(path).args(["-o", "IdentitiesOnly=yes"]);
    }
    // The way to the guest is authenticated by the cluster from end to end; its host key is new at every start.
    for option in
        ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=INFO", "ConnectTimeout=30"]
    {
        command.args(["-o", option]);
    }
    command.arg("-o").arg(format!("ProxyCommand={}", proxy(env, args)?));
    for forward in &args.local_forward {
        command.args(["-L", forward]);
    }
    let mut place = vec!["-l".to_owned(), args.login.clone(), args.name.clone()];
    place.extend(args.command.iter().cloned());
    command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let then = move || block_on(async { Ok(session(command, place, key).await) }).unwrap_or(NO_CONNECTION);
    Ok(Report { then: Some(Box::new(then)), ..Report::text(String::new()) })
}

/// Runs ssh and passes on its own messages; Ctrl-C is for it, not for us.
async fn session(mut command: tokio::process::Command, place: Vec<String>, key: Option<Key>) -> u8 {
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
    let mut talk = pin!(talk(command, place, &ssh));
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

/// Waits for a signal.
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
async fn talk(mut command: tokio::process::Command, place: Vec<String>, ssh: &Cell<Option<Pid>>) -> u8 {
    // With less than LogLevel=INFO ssh does not report a closed connection; with it, it prints messages about the host key.
    let words = Words::open();
    if let Ok(words) = &words {
        command.arg("-E").arg(words.path());
    }
    let Ok(mut child) = command.args(place).spawn() else { return NO_CONNECTION };
    ssh.set(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw));
    let status = match words {
        Ok(mut words) => tokio::select! {
            status = child.wait() => {
                words.rest();
                status
            }
            never = words.pass_on() => match never {},
        },
        Err(_) => child.wait().await,
    };
    let Ok(status) = status else { return NO_CONNECTION };
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(NO_CONNECTION)
}

/// The VM's private key, unless another one is named.
async fn key(settings: &Settings, args: &Ssh) -> Result<Option<Key>> {
    let client = NamespaceClient::open(settings, &args.place).await?;
    let machine = client.find(&args.name).await?;
    exec::pod_of(&client, &machine)?;
    if args.identity.is_some() {
        return Ok(None);
    }
    let secret = machine.status.as_ref().map(|status| status.ssh_secret_name.clone()).unwrap_or_default();
    if secret.is_empty() {
        return Err(Error::new(
            Code::Conflict,
            format!("{} has no SSH keys (spec.enableSSH is false)", args.name),
        )
        .hint("use your own key with --identity, or use neonctl vm console"));
    }
    let api: Api<Secret> = Api::namespaced(client.connection.client(), &client.namespace);
    let found = client.connection.within(&format!("cannot read secret {secret}"), api.get(&secret)).await?;
    let key = found.data.and_then(|mut data| data.remove("ssh-privatekey"));
    let key = key.ok_or_else(|| {
        Error::new(Code::Failed, format!("secret {secret} does not contain ssh-privatekey"))
    })?;
    let key = String::from_utf8(key.0).ok().as_deref().and_then(Key::parse).ok_or_else(|| {
        Error::new(
            Code::Failed,
            format!("the key in secret {secret} is not an unencrypted OpenSSH ed25519 key"),
        )
        .hint("use your own key with --identity")
    })?;
    Ok(Some(key))
}

/// This program, as the way to the guest.
fn proxy(env: &Env, args: &Ssh) -> Result<String> {
    let own = std::env::current_exe()
        .map_err(|error| Error::new(Code::Failed, "cannot find this program").cause(reason(&error)))?;
    let NamespaceArgs { namespace, access } = &args.place;
    let mut words = vec![
        own.display().to_string(),
        "vm".into(),
        "connect".into(),
        args.name.clone(),
        args.port.to_string(),
    ];
    let mut flag = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            words.extend([format!("--{name}"), value]);
        }
    };
    flag("namespace", namespace.clone());
    flag("kubeconfig", access.kubeconfig.as_ref().map(|path| path.display().to_string()));
    flag("context", access.context.clone());
    let _ = env;
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
