//! `vm ssh`

mod words;

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use tokio::signal::unix::{SignalKind, signal};

use self::words::Words;
use super::machines::Machines;
use crate::args::vm::{Place, Ssh};
use crate::connect::block_on;
use crate::env::Env;
use crate::error::{Code, Error, Result, reason};
use crate::report::Report;
use crate::settings::Settings;

/// What ssh returns when there was no connection.
const NO_CONNECTION: u8 = 255;

/// Logs in, or runs a command.
pub(in crate::commands) fn run(env: &Env, settings: &Settings, args: &Ssh) -> Result<Report> {
    let Some(program) = env.program("ssh") else {
        return Err(Error::new(Code::Failed, "ssh is not installed").hint("apt-get install openssh-client"));
    };
    let key = block_on(key(settings, args))?;
    let mut command = tokio::process::Command::new(program);
    let path = match &key {
        Some(file) => file.path().to_owned(),
        None => args.identity.clone().unwrap_or_default(),
    };
    command.arg("-i").arg(path).args(["-o", "IdentitiesOnly=yes"]);
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
    let then = move || {
        let code = block_on(async { Ok(session(command, place).await) }).unwrap_or(NO_CONNECTION);
        drop(key);
        code
    };
    Ok(Report { then: Some(Box::new(then)), ..Report::text(String::new()) })
}

/// Runs ssh and passes on what it says of itself; Ctrl-C is for it, not for us.
async fn session(mut command: tokio::process::Command, place: Vec<String>) -> u8 {
    let _held = signal(SignalKind::interrupt());
    // With less than LogLevel=INFO ssh does not say that a connection was closed; with it, it speaks of the host key.
    let words = Words::open();
    if let Ok(words) = &words {
        command.arg("-E").arg(words.path());
    }
    let Ok(mut child) = command.args(place).spawn() else { return NO_CONNECTION };
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

/// The machine's private key, in a file that only we can read, unless another one is named.
async fn key(settings: &Settings, args: &Ssh) -> Result<Option<tempfile::NamedTempFile>> {
    let machines = Machines::open(settings, &args.place).await?;
    let machine = machines.get(&args.name).await?;
    machines.pod(&machine)?;
    if args.identity.is_some() {
        return Ok(None);
    }
    let secret = machine.status.as_ref().map(|status| status.ssh_secret_name.clone()).unwrap_or_default();
    if secret.is_empty() {
        return Err(Error::new(
            Code::Conflict,
            format!("{} has no SSH keys (spec.enableSSH is false)", args.name),
        )
        .hint("name a key of your own with --identity, or use neonctl vm console"));
    }
    let api: Api<Secret> = Api::namespaced(machines.connection.client(), &machines.namespace);
    let found = machines.connection.within(&format!("cannot read secret {secret}"), api.get(&secret)).await?;
    let key = found.data.and_then(|mut data| data.remove("ssh-privatekey"));
    let key =
        key.ok_or_else(|| Error::new(Code::Failed, format!("secret {secret} holds no ssh-privatekey")))?;
    let failed =
        |error: std::io::Error| Error::new(Code::Failed, "cannot keep the key").cause(reason(&error));
    let mut file = tempfile::Builder::new().prefix("neonctl-key-").tempfile().map_err(failed)?;
    file.write_all(&key.0).map_err(failed)?;
    file.flush().map_err(failed)?;
    Ok(Some(file))
}

/// This program, as the way to the guest.
fn proxy(env: &Env, args: &Ssh) -> Result<String> {
    let own = std::env::current_exe()
        .map_err(|error| Error::new(Code::Failed, "cannot find this program").cause(reason(&error)))?;
    let Place { namespace, access } = &args.place;
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
