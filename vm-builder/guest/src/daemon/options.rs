//! Flags of `neonvm-guest daemon`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::path::PathBuf;

use neonvm_types::guest::{DAEMON_PORT, METRICS_PORT, SSH_PORT};

use super::Error;

/// Where the daemon listens and looks. Every flag is `--name=value`; one dash is accepted, as older images start it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// CPUs, files and status. `--addr`.
    pub address: SocketAddr,
    /// Addresses from which CPUs and files are changed; empty: all. `--peer`, repeatable.
    pub peers: Vec<IpAddr>,
    /// Metrics. `--metrics-addr`; `off`: none.
    pub metrics_address: Option<SocketAddr>,
    /// SSH. `--ssh-addr`; `off`: none.
    pub ssh_address: Option<SocketAddr>,
    /// Passed on to every SSH session. `--ssh-option`, repeatable.
    pub ssh_options: Vec<String>,
    /// What stands for `/` where `/proc`, `/sys`, `/run` and the paths of file requests are looked up. `--root`.
    pub root: PathBuf,
    /// Whether the clock is kept. `--clock=on|off`.
    pub clock: bool,
    /// The workload's streams, if a client has them. `--streams=OUTPUT,ERRORS,LOG,LOG`: descriptors to read, and where their bytes are
    /// logged. `--client=INPUT|output`: a client is awaited, with this descriptor of standard input or without.
    pub streams: Option<Streams>,
}

/// Descriptors of a workload whose streams a client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    pub outputs: [RawFd; 4],
    /// None: no client is awaited. Some: standard input, if the client has it.
    pub client: Option<Option<RawFd>>,
}

impl Default for Options {
    fn default() -> Self {
        let any = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
        Self {
            address: any(DAEMON_PORT),
            peers: Vec::new(),
            metrics_address: Some(any(METRICS_PORT)),
            ssh_address: Some(any(SSH_PORT)),
            ssh_options: Vec::new(),
            root: PathBuf::from("/"),
            clock: true,
            streams: None,
        }
    }
}

impl Options {
    /// Reads the flags after `daemon`.
    pub fn parse<I: IntoIterator<Item = String>>(arguments: I) -> Result<Self, Error> {
        let mut options = Self::default();
        let mut client = None;
        for argument in arguments {
            let flag = argument.trim_start_matches('-');
            let Some((name, value)) = flag.split_once('=').filter(|_| argument.starts_with('-')) else {
                return Err(Error::Usage(format!("expected --name=value, not {argument:?}")));
            };
            match name {
                "addr" => options.address = address(name, value)?,
                "peer" => options.peers.push(peer(name, value)?),
                "metrics-addr" => options.metrics_address = optional(name, value)?,
                "ssh-addr" => options.ssh_address = optional(name, value)?,
                "ssh-option" => options.ssh_options.push(value.to_owned()),
                "root" => options.root = PathBuf::from(value),
                "clock" => options.clock = switch(name, value)?,
                "streams" => options.streams = Some(Streams { outputs: outputs(name, value)?, client: None }),
                "client" if value == "output" => client = Some(None),
                "client" => client = Some(Some(descriptor(name, value)?)),
                _ => return Err(Error::Usage(format!("unknown flag --{name}"))),
            }
        }
        if let Some(streams) = &mut options.streams {
            streams.client = client;
        }
        Ok(options)
    }
}

fn address(name: &str, value: &str) -> Result<SocketAddr, Error> {
    value.parse().map_err(|_| Error::Usage(format!("--{name}: {value:?} is not address:port")))
}

/// An address without a port.
fn peer(name: &str, value: &str) -> Result<IpAddr, Error> {
    value.parse().map_err(|_| Error::Usage(format!("--{name}: {value:?} is not an address")))
}

fn descriptor(name: &str, value: &str) -> Result<RawFd, Error> {
    let number = value.parse().ok().filter(|number| *number > 2);
    number.ok_or_else(|| Error::Usage(format!("--{name}: {value:?} is not a descriptor")))
}

fn outputs(name: &str, value: &str) -> Result<[RawFd; 4], Error> {
    let all = value.split(',').map(|number| descriptor(name, number)).collect::<Result<Vec<_>, _>>()?;
    all.try_into().map_err(|_| Error::Usage(format!("--{name}: expected four descriptors, not {value:?}")))
}

fn optional(name: &str, value: &str) -> Result<Option<SocketAddr>, Error> {
    if value == "off" { Ok(None) } else { address(name, value).map(Some) }
}

fn switch(name: &str, value: &str) -> Result<bool, Error> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Error::Usage(format!("--{name}: expected on or off, not {value:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Options, Error> {
        Options::parse(flags.iter().map(|flag| (*flag).to_owned()))
    }

    #[test]
    fn both_spellings_of_flags_are_read() {
        let options =
            parse(&["-addr=0.0.0.0:1", "--metrics-addr=off", "--clock=off", "--peer=10.0.2.2"]).unwrap();
        assert_eq!(options.peers, [IpAddr::from([10, 0, 2, 2])]);
        assert_eq!(options.address.port(), 1);
        assert_eq!((options.metrics_address, options.clock), (None, false));
    }

    #[test]
    fn streams_are_descriptors() {
        let of = |flags: &[&str]| parse(flags).unwrap().streams;
        let outputs = [5, 6, 7, 8];
        assert_eq!(of(&["--streams=5,6,7,8"]), Some(Streams { outputs, client: None }));
        assert_eq!(
            of(&["--client=output", "--streams=5,6,7,8"]),
            Some(Streams { outputs, client: Some(None) })
        );
        assert_eq!(
            of(&["--streams=5,6,7,8", "--client=9"]),
            Some(Streams { outputs, client: Some(Some(9)) })
        );
        assert_eq!(of(&["--client=9"]), None);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for flags in [
            ["addr=0.0.0.0:1"],
            ["--peer=10.0.2.2:1"],
            ["--adr=0.0.0.0:1"],
            ["--addr=localhost:1"],
            ["--clock=maybe"],
            ["--streams=5,6,7"],
            ["--streams=5,6,7,1"],
            ["--client=x"],
            ["--"],
        ] {
            assert!(parse(&flags).is_err(), "{flags:?}");
        }
    }
}
