//! The size of a cluster's nodes, which is kept from start to start.

use neonvm_kit::private;
use neonvm_kit::reserve::Reserve;
use serde::{Deserialize, Serialize};

use crate::args::local::Up;
use crate::error::{Error, Result};
use crate::instance::Instance;
use crate::settings::{Origin, Settings};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Nodes {
    /// None: one.
    pub(super) nodes: Option<u8>,
    /// None: all of this host.
    pub(super) cpus: Option<String>,
    /// None: that of this host, minus a reserve.
    pub(super) memory: Option<String>,
}

impl Nodes {
    /// What this start has: flags, then environment and configuration file, then the last start.
    pub(super) fn of(instance: &Instance, settings: &Settings, args: &Up) -> Result<Self> {
        let last = Self::read(instance);
        let configured = match settings.find("nodes")? {
            (_, Origin::Builtin) => None,
            (text, _) => text.parse().ok(),
        };
        Ok(Self {
            nodes: args.nodes.or(configured).or(last.nodes),
            cpus: args.cpus.clone().or(last.cpus),
            memory: args.memory.clone().or(last.memory),
        })
    }

    fn path(instance: &Instance) -> std::path::PathBuf {
        instance.directory.join("nodes.json")
    }

    /// That of the last start; nothing if there was none.
    pub(super) fn read(instance: &Instance) -> Self {
        let text = std::fs::read_to_string(Self::path(instance)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub(super) fn keep(&self, instance: &Instance) -> Result<()> {
        let path = Self::path(instance);
        let text = serde_json::to_string(self).unwrap_or_default();
        Reserve::from_directory(&instance.directory)
            .lend(|| private::replace(&path, text.as_bytes()))
            .map_err(|error| Error::file("write", &path, &error))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command, local};
    use crate::env::Env;

    fn up(line: &str) -> Up {
        let words = ["neonctl", "local", "up"].into_iter().chain(line.split_whitespace());
        match Args::try_parse_from(words).unwrap().command {
            Command::Local(local::Command::Up(args)) => args,
            _ => unreachable!(),
        }
    }

    #[test]
    fn a_start_has_the_nodes_of_the_last_one() {
        let directory = tempfile::tempdir().unwrap();
        let instance = Instance { name: "a".to_owned(), directory: directory.path().to_owned() };
        let settings = |vars: &[(&str, &str)]| {
            let home = ("HOME", directory.path().to_str().unwrap());
            let vars =
                vars.iter().copied().chain([home]).map(|(name, value)| (name.to_owned(), value.to_owned()));
            Settings::load(&Env { vars: vars.collect(), ..Env::default() }).unwrap()
        };
        let plain = settings(&[]);
        assert_eq!(Nodes::of(&instance, &plain, &up("")).unwrap(), Nodes::default());
        Nodes::of(&instance, &plain, &up("--nodes 2 --memory 8Gi")).unwrap().keep(&instance).unwrap();
        let again = Nodes::of(&instance, &plain, &up("--cpus 4")).unwrap();
        assert_eq!(
            (again.nodes, again.cpus.as_deref(), again.memory.as_deref()),
            (Some(2), Some("4"), Some("8Gi"))
        );
        assert_eq!(Nodes::of(&instance, &plain, &up("--nodes 1")).unwrap().nodes, Some(1));
        let configured = settings(&[("NEONCTL_NODES", "3")]);
        assert_eq!(Nodes::of(&instance, &configured, &up("")).unwrap().nodes, Some(3));
    }
}
