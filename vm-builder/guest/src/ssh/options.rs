//! Flags of `neonvm-guest ssh`.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::Error;

/// Where init puts the keys of the runtime volume's document.
pub const RUNTIME_KEYS: &str = "/run/neonvm/authorized_keys";

/// The options of a session, from the daemon. Every flag is `--name=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where the client is, for its environment and the log. `--peer`.
    pub peer: Option<SocketAddr>,
    /// Files with keys that may log in as any user. `--authorized-keys`, repeatable; the first replaces the default.
    pub authorized_keys: Vec<PathBuf>,
    /// Places of the host key: the first that has one, else the first where one can be made. `--host-key`, likewise.
    pub host_keys: Vec<PathBuf>,
    /// Whether decisions are logged, too. `--verbose=on`.
    pub verbose: bool,
}

impl Default for Options {
    fn default() -> Self {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
        Self {
            peer: None,
            authorized_keys: paths(&[
                "/mnt/ssh/authorized_keys",
                RUNTIME_KEYS,
                "/neonvm/ssh/authorized_keys",
            ]),
            host_keys: paths(&["/etc/ssh/ssh_host_ed25519_key", "/run/neonvm/ssh_host_ed25519_key"]),
            verbose: false,
        }
    }
}

impl Options {
    /// Reads the flags after `ssh`.
    pub fn parse(arguments: &[String]) -> Result<Self, Error> {
        let mut options = Self::default();
        let (mut authorized_keys, mut host_keys) = (Vec::new(), Vec::new());
        for argument in arguments {
            let Some((name, value)) = argument.strip_prefix("--").and_then(|flag| flag.split_once('='))
            else {
                return Err(Error::Usage(format!("expected --name=value, not {argument:?}")));
            };
            let unreadable = || Error::Usage(format!("--{name}: cannot read {value:?}"));
            match name {
                "peer" => options.peer = Some(value.parse().map_err(|_| unreadable())?),
                "authorized-keys" => authorized_keys.push(PathBuf::from(value)),
                "host-key" => host_keys.push(PathBuf::from(value)),
                "verbose" => options.verbose = value == "on",
                _ => return Err(Error::Usage(format!("unknown flag --{name}"))),
            }
        }
        if !authorized_keys.is_empty() {
            options.authorized_keys = authorized_keys;
        }
        if !host_keys.is_empty() {
            options.host_keys = host_keys;
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_replace_defaults() {
        let flags = ["--peer=[::1]:5".to_owned(), "--host-key=/k".to_owned()];
        let options = Options::parse(&flags).unwrap();
        assert_eq!(options.host_keys, [PathBuf::from("/k")]);
        assert_eq!(options.authorized_keys, Options::default().authorized_keys);
        assert!(Options::parse(&["--peer=nowhere".to_owned()]).is_err());
        assert!(Options::parse(&["-i".to_owned()]).is_err());
    }
}
