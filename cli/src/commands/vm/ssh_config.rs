//! `vm ssh-config`

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use neonvm_api::VirtualMachine;
use neonvm_kit::private;

use super::ssh::session::{OPTIONS, proxy, stored_key};
use crate::args::vm::SshConfig;
use crate::commands::resource::NamespaceClient;
use crate::connect::block_on;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::report::Report;
use crate::settings::Settings;

/// Prints a block for a configuration file of ssh, and stores the key that it names.
pub(super) fn run(env: &Env, settings: &Settings, args: &SshConfig) -> Result<Report> {
    let (name, key) = block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let machine: VirtualMachine = client.find(&args.name).await?;
        let key = stored_key(&client, &machine).await?;
        Ok((key_name(&client.namespace, &machine.metadata), key))
    })?;
    let directory = env.directory("XDG_STATE_HOME", ".local/state").join("neonvm/ssh");
    let path = directory.join(name);
    private::directory(&directory)
        .and_then(|()| private::replace(&path, key.as_bytes()))
        .map_err(|error| Error::file("write", &path, &error))?;
    let proxy = proxy(&args.name, "%p", settings.place())?.replace("%%p", "%p");
    let mut text = format!("Host {}\n  User {}\n  ProxyCommand {proxy}\n", args.name, args.login);
    text.push_str(&format!("  IdentityFile \"{}\"\n  IdentitiesOnly yes\n", path.display()));
    for option in OPTIONS {
        text.push_str(&format!("  {}\n", option.replacen('=', " ", 1)));
    }
    text.push_str("  LogLevel ERROR\n");
    Ok(Report::text(text).note(format!("the private key of {} is in {}", args.name, path.display())))
}

/// Name of the file with the key of a VM: that of no other one, in whichever namespace and cluster.
fn key_name(namespace: &str, vm: &ObjectMeta) -> String {
    let of = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{namespace}.{}.{}", of(&vm.name), of(&vm.uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_vms_share_a_file() {
        let vm = |name: &str, uid: &str| ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        };
        let names = [
            key_name("a", &vm("b-c", "1")),
            key_name("a-b", &vm("c", "2")),
            key_name("a", &vm("b.c", "3")),
            // In another cluster.
            key_name("a", &vm("b-c", "4")),
        ];
        assert_eq!(std::collections::BTreeSet::from(names).len(), 4);
    }
}
