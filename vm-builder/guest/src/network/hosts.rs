//! `/etc/hosts` and `/etc/hostname`: the guest's own name has its address, as container engines have it.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use super::resolver;

/// Addresses of names.
pub const HOSTS: &str = "/etc/hosts";
const HOSTNAME: &str = "/etc/hostname";
/// Where Debian has the own name of a host without a network.
const ALONE: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);
const LOOPBACK: [&str; 2] = ["127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback"];

/// Writes both files for the kernel's name of this host. Lines of the image stay, but for those that give the name another
/// address.
pub fn write(address: Option<Ipv4Addr>) -> io::Result<()> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
    let name = name.trim();
    resolver::write(Path::new(HOSTNAME), &format!("{name}\n"))?;
    let old = fs::read(HOSTS).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    resolver::write(Path::new(HOSTS), &with(&old, name, address.unwrap_or(ALONE)))
}

/// The text with lines for loopback, if it has none, and one for this name.
pub fn with(old: &str, name: &str, address: Ipv4Addr) -> String {
    let address = IpAddr::from(address);
    let mut lines: Vec<String> = Vec::new();
    let has = |wanted: &str| old.lines().filter_map(entry).any(|(_, names)| names.contains(&wanted));
    if !has("localhost") {
        lines.extend(LOOPBACK.map(str::to_owned));
    }
    for line in old.lines() {
        match entry(line) {
            // The name has one address: that of IPv4 is given, and one of IPv6 is the image's own matter.
            Some((of, names)) if names.contains(&name) && of.is_ipv4() && of != address => {
                let others: Vec<&str> = names.into_iter().filter(|other| *other != name).collect();
                if !others.is_empty() {
                    lines.push(format!("{of}\t{}", others.join(" ")));
                }
            }
            _ => lines.push(line.to_owned()),
        }
    }
    let known =
        lines.iter().filter_map(|line| entry(line)).any(|(of, names)| of == address && names.contains(&name));
    if !known && !name.is_empty() {
        let short = name.split('.').next().filter(|short| *short != name && !short.is_empty());
        lines.push(format!(
            "{address}\t{name}{}",
            short.map_or_else(String::new, |short| format!(" {short}"))
        ));
    }
    lines.join("\n") + "\n"
}

/// Address and names of a line; none of a comment or of what is no entry.
fn entry(line: &str) -> Option<(IpAddr, Vec<&str>)> {
    let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
    Some((words.next()?.parse().ok()?, words.collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWN: Ipv4Addr = Ipv4Addr::new(169, 254, 254, 254);

    #[test]
    fn the_own_name_is_added_to_whatever_the_image_has() {
        let empty = with("", "vm-db", OWN);
        assert_eq!(
            empty,
            "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n169.254.254.254\tvm-db\n"
        );
        assert_eq!(with(&empty, "vm-db", OWN), empty, "once");
        let baked = "# of the image\n127.0.0.1 localhost baked\n10.0.0.1 db\n";
        assert_eq!(with(baked, "db.example", OWN), format!("{baked}169.254.254.254\tdb.example db\n"));
        // A name that the image gave to loopback, as Debian's installer does.
        let debian = "127.0.0.1 localhost\n127.0.1.1 vm-db other\n";
        assert_eq!(
            with(debian, "vm-db", OWN),
            "127.0.0.1 localhost\n127.0.1.1\tother\n169.254.254.254\tvm-db\n"
        );
        assert_eq!(
            with("127.0.0.1 localhost vm-db\n", "vm-db", ALONE),
            "127.0.0.1\tlocalhost\n127.0.1.1\tvm-db\n"
        );
    }

    proptest! {
        #[test]
        fn the_own_name_always_has_the_address_and_other_names_keep_theirs(old in "([0-9.:a-c#\\s]|127.0.0.1 |a |vm )*") {
            let text = with(&old, "vm", OWN);
            let all: Vec<_> = text.lines().filter_map(entry).collect();
            let own: Vec<IpAddr> = all.iter().filter(|(of, names)| of.is_ipv4() && names.contains(&"vm")).map(|(of, _)| *of).collect();
            prop_assert!(!own.is_empty() && own.iter().all(|of| *of == IpAddr::from(OWN)), "{text}");
            for (of, names) in old.lines().filter_map(entry) {
                for name in names.iter().filter(|name| **name != "vm") {
                    prop_assert!(all.iter().any(|(other, names)| *other == of && names.contains(name)), "{name}: {text}");
                }
            }
        }
    }
}
