//! Which addresses a local cluster has: a number that no other cluster of this machine has, and whose networks nobody uses.
//!
//! A claim is a file below [`CLAIMS`] with the cluster's directory in it; whoever makes the file has the number. A claim whose
//! directory is gone is nobody's.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Context as _;
use neonvm_node::NETWORKS;

/// Where claims are.
const CLAIMS: &str = "/run/neonvm/networks";

/// The number of a cluster: the one it has, or a free one.
pub(crate) fn claim(identity: &str) -> anyhow::Result<u8> {
    let directory = Path::new(CLAIMS);
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {CLAIMS}"))?;
    let file = |number: u8| directory.join(number.to_string());
    let owner = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    if let Some(own) = (0..NETWORKS).find(|number| owner(&file(*number)) == identity) {
        return Ok(own);
    }
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    // Different clusters begin at different places, so that they seldom meet.
    let start = identity.bytes().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)) % NETWORKS;
    for number in (0..NETWORKS).map(|step| (start + step) % NETWORKS) {
        let path = file(number);
        let holder = owner(&path);
        if !holder.is_empty() && !Path::new(&holder).exists() {
            let _ = std::fs::remove_file(&path);
        }
        if !is_used(number, &routes) && take(&path, identity)? {
            return Ok(number);
        }
    }
    anyhow::bail!("all {NETWORKS} networks for local clusters are in use on this machine")
}

fn take(path: &Path, identity: &str) -> anyhow::Result<bool> {
    match std::fs::File::options().write(true).create_new(true).open(path) {
        Ok(mut file) => {
            file.write_all(identity.as_bytes())?;
            Ok(true)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot make {}", path.display())),
    }
}

/// Whether this machine has a route into the networks of a number. Columns of `/proc/net/route`: interface, destination and
/// so on; addresses in hexadecimal with the last byte first; the eighth is the mask.
fn is_used(number: u8, routes: &str) -> bool {
    let overlay = neonvm_node::overlay(number).nth(0).unwrap_or(Ipv4Addr::UNSPECIFIED);
    let networks = [
        (Ipv4Addr::new(10, 90, number, 0), 24_u32),
        (Ipv4Addr::new(10, 128 + number, 0, 0), 16),
        (overlay, 16),
    ];
    routes.lines().skip(1).any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let address = |index: usize| {
            words.get(index).and_then(|word| u32::from_str_radix(word, 16).ok()).map(u32::swap_bytes)
        };
        let (Some(destination), Some(mask)) = (address(1), address(7)) else { return false };
        // A default route leads everywhere.
        mask != 0
            && networks.iter().any(|(network, length)| {
                let common = mask & (u32::MAX << (32 - length));
                destination & common == u32::from(*network) & common
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_into_a_network_make_it_used() {
        let head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n";
        let route =
            |destination: &str, mask: &str| format!("{head}eth0\t{destination}\t0\t1\t0\t0\t0\t{mask}\n");
        // 10.90.5.0/24, 10.133.2.0/24, 10.0.0.0/8, default.
        assert!(is_used(5, &route("00055A0A", "00FFFFFF")));
        assert!(!is_used(6, &route("00055A0A", "00FFFFFF")));
        assert!(is_used(5, &route("0002850A", "00FFFFFF")));
        assert!(is_used(5, &route("0000000A", "000000FF")));
        assert!(!is_used(5, &route("00000000", "00000000")));
    }
}
