//! Flags of `neonvm-guest monitor`, as upstream's monitor has them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};

use neonvm_types::guest::MemoryLimits;
use neonvm_types::monitor_protocol::MONITOR_PORT;

use super::Error;
use super::postgres::Target;

/// Groups of the guest's own programs, which must never be frozen.
const OWN: [&str; 2] = ["system", "log"];

/// What the monitor watches and where it listens. Flags are `--name=value`, `--name value` or `-n value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where agents connect. `-a`, `--addr`.
    pub address: SocketAddr,
    /// Addresses of which agents connect; empty: all. `--peer`, repeatable.
    pub peers: Vec<IpAddr>,
    /// Control group (version 2) below `/sys/fs/cgroup` of which the memory counts. None: that of all processes. `-c`,
    /// `--cgroup`.
    pub cgroup: Option<String>,
    /// Limits of the control group, or of the workload's if none is named. `--limits`.
    pub limits: MemoryLimits,
    /// PostgreSQL with a file cache that follows the VM's size. None: there is no such cache. `-p`, `--pgconnstr`.
    pub postgres: Option<Target>,
    /// Whether agents up to v0.17 of upstream are served too, with the informant's protocol, on the same port. `--informant`.
    pub informant: bool,
    /// TCP port of the guest's metrics, which such agents are given. `--metrics-port`.
    pub metrics_port: u16,
    /// What stands for `/` where `/proc` and `/sys` are looked up. `--root`.
    pub root: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), MONITOR_PORT),
            peers: Vec::new(),
            cgroup: None,
            limits: MemoryLimits::Off,
            postgres: None,
            informant: false,
            metrics_port: 9100,
            root: PathBuf::from("/"),
        }
    }
}

impl Options {
    /// Reads the flags after `monitor`.
    pub fn parse(arguments: &[String]) -> Result<Self, Error> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            if argument == "--informant" {
                options.informant = true;
                continue;
            }
            let (name, value) = match argument.split_once('=').filter(|_| argument.starts_with("--")) {
                Some((name, value)) => (name, Some(value)),
                None => (argument.as_str(), arguments.next().map(String::as_str)),
            };
            let value = value.ok_or_else(|| Error::Usage(format!("{name} needs a value")));
            match name {
                "-a" | "--addr" => {
                    let value = value?;
                    let wrong = |_| Error::Usage(format!("{name}: {value:?} is not address:port"));
                    options.address = value.parse().map_err(wrong)?;
                }
                "--peer" => {
                    let value = value?;
                    let wrong = |_| Error::Usage(format!("{name}: {value:?} is not an address"));
                    options.peers.push(value.parse().map_err(wrong)?);
                }
                "-c" | "--cgroup" => options.cgroup = Some(cgroup(value?)?),
                "-p" | "--pgconnstr" => {
                    let target =
                        Target::parse(value?).map_err(|error| Error::Usage(format!("{name}: {error}")));
                    options.postgres = Some(target?);
                }
                "--metrics-port" => {
                    let value = value?;
                    let wrong = |_| Error::Usage(format!("{name}: {value:?} is not a TCP port, 1 to 65535"));
                    options.metrics_port = value.parse::<std::num::NonZeroU16>().map_err(wrong)?.get();
                }
                "--limits" => {
                    let wrong = |error| Error::Usage(format!("{name}: {error}"));
                    options.limits = value?.parse().map_err(wrong)?;
                }
                "--root" => options.root = PathBuf::from(value?),
                _ => return Err(Error::Usage(format!("unknown flag {name}"))),
            }
        }
        let own = options
            .cgroup
            .as_deref()
            .filter(|name| OWN.contains(&name.split('/').next().unwrap_or_default()));
        if let Some(name) = own.filter(|_| options.limits_groups()) {
            return Err(Error::Usage(format!(
                "--cgroup: the guest's own programs are in control group {name:?}, which --limits and --informant limit; \
                 name another one"
            )));
        }
        Ok(options)
    }

    /// Whether a control group may get limits.
    pub(super) fn limits_groups(&self) -> bool {
        !self.limits.is_off() || self.informant
    }
}

/// A path below the root of the hierarchy; upstream gives it without a slash in front.
fn cgroup(name: &str) -> Result<String, Error> {
    let name = name.trim_matches('/');
    let below = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if below && !name.is_empty() {
        Ok(name.to_owned())
    } else {
        Err(Error::Usage(format!("--cgroup: {name:?} is no control group")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Options, Error> {
        Options::parse(&flags.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn every_spelling_of_flags_is_read() {
        assert_eq!(parse(&[]).unwrap().address.to_string(), "0.0.0.0:10301");
        let options =
            parse(&["-c", "neon-postgres", "--addr=127.0.0.1:1", "-p", "host=/run user=u"]).unwrap();
        assert_eq!(options.cgroup.as_deref(), Some("neon-postgres"));
        assert_eq!(options.address.port(), 1);
        assert!(options.postgres.is_some());
        assert!(!options.informant && parse(&["--informant", "-c", "a"]).unwrap().informant);
        assert_eq!(parse(&["--limits=high"]).unwrap().limits, MemoryLimits::High);
        assert_eq!(parse(&["--cgroup", "/a/b/"]).unwrap().cgroup.as_deref(), Some("a/b"));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for flags in [
            &["-c"][..],
            &["-x", "1"],
            &["-a", "10301"],
            &["-c", "../x"],
            &["-c", ""],
            &["-p", "host"],
            &["--metrics-port", "0"],
            &["--limits", "on"],
            &["--limits=high", "-c", "system"],
            &["--informant", "-c", "log/x"],
        ] {
            assert!(parse(flags).is_err(), "{flags:?}");
        }
    }
}
