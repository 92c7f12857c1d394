//! The kernel command line.

use std::net::Ipv4Addr;
use std::time::Duration;

/// Words of the kernel command line that concern us; later ones win.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// `root=`.
    pub root: Option<String>,
    /// `rootfstype=`.
    pub root_type: Option<String>,
    /// `rootflags=`.
    pub root_flags: Option<String>,
    /// `ro` (the kernel's default) or `rw`.
    pub root_writable: bool,
    /// `init=`.
    pub init: Option<String>,
    /// `hostname=`.
    pub hostname: Option<String>,
    /// `maxcpus=` is there: the daemon decides which CPUs are online.
    pub cpus_by_daemon: bool,
    /// `quiet` or `loglevel=`: what the kernel prints was chosen.
    pub kernel_log_chosen: bool,
    /// `ip=`, the form with an address.
    pub interfaces: Vec<Interface>,
    /// `neonvm.stop_timeout=`, seconds between the request to stop and the kill of processes.
    pub stop_timeout: Option<Duration>,
    /// `neonvm.root_timeout=`, seconds to wait for the root device.
    pub root_timeout: Option<Duration>,
}

/// One `ip=client::gateway:netmask:hostname:device:autoconf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub address: Ipv4Addr,
    /// Length of the network prefix, 0–32.
    pub prefix: u8,
    /// Default router.
    pub gateway: Option<Ipv4Addr>,
    /// Name such as `eth1`.
    pub device: String,
}

impl CommandLine {
    /// Reads the words. Double quotes hold words together, as the kernel does; what is not understood is skipped.
    pub fn parse(text: &str) -> Self {
        let mut line = Self::default();
        for word in words(text) {
            // After `--` come arguments of init.
            if word == "--" {
                break;
            }
            let (key, value) = word.split_once('=').map_or((word.as_str(), None), |(k, v)| (k, Some(v)));
            line.take(key, value.map(|value| value.trim_matches('"')));
        }
        line
    }

    fn take(&mut self, key: &str, value: Option<&str>) {
        let text = || value.filter(|value| !value.is_empty()).map(str::to_owned);
        let seconds = || value.and_then(|value| value.parse().ok()).map(Duration::from_secs);
        match key {
            "root" => self.root = text(),
            "rootfstype" => self.root_type = text(),
            "rootflags" => self.root_flags = text(),
            "ro" => self.root_writable = false,
            "rw" => self.root_writable = true,
            "init" => self.init = text(),
            "hostname" => self.hostname = text(),
            "maxcpus" => self.cpus_by_daemon = value.is_some(),
            "quiet" | "loglevel" => self.kernel_log_chosen = true,
            "ip" => self.interfaces.extend(value.and_then(Interface::parse)),
            "neonvm.stop_timeout" => self.stop_timeout = seconds(),
            "neonvm.root_timeout" => self.root_timeout = seconds(),
            _ => {}
        }
    }
}

impl Interface {
    /// Reads the value of `ip=`. None if it names no address or no device.
    pub fn parse(value: &str) -> Option<Self> {
        let mut fields = value.split(':');
        let address: Ipv4Addr = fields.next()?.parse().ok()?;
        let _server = fields.next();
        let gateway = fields.next().and_then(|text| text.parse().ok());
        let mask = fields.next().and_then(|text| text.parse::<Ipv4Addr>().ok());
        let _hostname = fields.next();
        let device = fields.next().filter(|name| is_interface_name(name))?.to_owned();
        let prefix = mask.map_or_else(|| class_prefix(address), |mask| u32::from(mask).leading_ones() as u8);
        Some(Self { address, prefix, gateway, device })
    }
}

/// Whether the kernel could have an interface of this name: 1–15 bytes, no slash, no white space, no colon.
pub fn is_interface_name(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control())
}

/// Prefix by address class (RFC 791), what the kernel takes when no mask is given.
fn class_prefix(address: Ipv4Addr) -> u8 {
    match address.octets() {
        [0..=127, ..] => 8,
        [128..=191, ..] => 16,
        _ => 24,
    }
}

fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for character in text.chars() {
        match character {
            '"' => {
                quoted = !quoted;
                word.push('"');
            }
            c if c.is_whitespace() && !quoted => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words.into_iter().map(|word| word.trim_matches('"').to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_line_of_the_runner_is_understood() {
        let line = CommandLine::parse(
            "panic=-1 init=/neonvm/bin/init loglevel=6 root=/dev/vda rw memhp_default_state=online \
             ip=10.100.128.3:::255.255.0.0:pod-1:eth1:off hostname=vm-pod maxcpus=1 console=ttyS1\n",
        );
        assert_eq!(line.root.as_deref(), Some("/dev/vda"));
        assert_eq!(line.init.as_deref(), Some("/neonvm/bin/init"));
        assert_eq!(line.hostname.as_deref(), Some("vm-pod"));
        assert!(line.root_writable && line.cpus_by_daemon && line.kernel_log_chosen);
        let expected = Interface {
            address: Ipv4Addr::new(10, 100, 128, 3),
            prefix: 16,
            gateway: None,
            device: "eth1".into(),
        };
        assert_eq!(line.interfaces, [expected]);
    }

    #[test]
    fn quotes_hold_words_together_and_arguments_of_init_are_not_ours() {
        let line = CommandLine::parse(r#"rootflags="data=ordered,a b" ro rw ro -- hostname=no"#);
        assert_eq!(line.root_flags.as_deref(), Some("data=ordered,a b"));
        assert!(!line.root_writable && line.hostname.is_none());
    }

    #[test]
    fn an_address_without_mask_has_that_of_its_class_and_dhcp_forms_are_left_to_the_client() {
        assert_eq!(Interface::parse("172.16.0.9::172.16.0.1:::eth2").unwrap().prefix, 16);
        for value in ["dhcp", "on", ":::::eth0:dhcp", "1.2.3.4", "1.2.3.4::::h:a/b:off", ""] {
            assert_eq!(Interface::parse(value), None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in any::<String>()) {
            let line = CommandLine::parse(&text);
            prop_assert!(line.interfaces.iter().all(|interface| interface.prefix <= 32));
        }
    }
}
