//! `vm ssh-config`

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use neonvm_api::VirtualMachine;

use super::ssh::session::{OPTIONS, proxy, stored_key};
use crate::args::vm::SshConfig;
use crate::commands::resource::client::NamespaceClient;
use crate::connect::block_on;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::report::Report;
use crate::settings::Settings;

/// Prints a block for a configuration file of ssh, and stores the key that it names.
pub(super) fn run(env: &Env, settings: &Settings, args: &SshConfig) -> Result<Report> {
    let (namespace, key) = block_on(async {
        let client = NamespaceClient::open(settings, &args.place).await?;
        let machine: VirtualMachine = client.find(&args.name).await?;
        let key = stored_key(&client, &machine).await?;
        Ok((client.namespace, key))
    })?;
    let directory = env.directory("XDG_STATE_HOME", ".local/state").join("neonvm/ssh");
    let path = store(&directory, &format!("{namespace}-{}", args.name), &key)?;
    let proxy = proxy(&args.name, "%p", &args.place)?.replace("%%p", "%p");
    let mut text = format!("Host {}\n  User {}\n  ProxyCommand {proxy}\n", args.name, args.login);
    text.push_str(&format!("  IdentityFile \"{}\"\n  IdentitiesOnly yes\n", path.display()));
    for option in OPTIONS {
        text.push_str(&format!("  {}\n", option.replacen('=', " ", 1)));
    }
    text.push_str("  LogLevel ERROR\n");
    Ok(Report::text(text).note(format!("the private key of {} is in {}", args.name, path.display())))
}

/// Writes the key to a file of its own that only its owner can read.
fn store(directory: &Path, name: &str, key: &str) -> Result<PathBuf> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error: std::io::Error| Error::file("write", &path, &error)
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed(directory))?;
    let path = directory.join(name);
    let part = directory.join(format!(".{name}.part"));
    // An earlier file may be open to others.
    let _ = std::fs::remove_file(&part);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&part)
        .map_err(failed(&part))?;
    file.write_all(key.as_bytes()).map_err(failed(&part))?;
    std::fs::rename(&part, &path).map_err(failed(&path))?;
    Ok(path)
}
