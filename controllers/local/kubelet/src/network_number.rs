//! The addresses of a local cluster: a number that no other cluster on this host has, with unused networks.
//!
//! A claim is a file below [`CLAIMS`] with the cluster's directory in it. A claim of a removed directory is free.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::{NETWORKS, overlay};

/// Where claims are.
const CLAIMS: &str = "/run/neonvm/networks";

/// The number of a cluster, below [`NETWORKS`]: the one it has, or a free one. `identity` is the cluster's directory, `last` the number
/// that it had: claims do not outlast the host, and VMs keep their addresses.
///
/// # Errors
/// If all numbers are taken, or a claim cannot be read or written.
pub fn claim(identity: &str, last: Option<u8>) -> io::Result<u8> {
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    claim_below(Path::new(CLAIMS), (identity, last), |number| is_used(number, &routes))
}

/// The number of a cluster with this overlay, as [`overlay`] gives it.
#[must_use]
pub fn of_overlay(range: &str) -> Option<u8> {
    (0..NETWORKS).find(|number| overlay(*number).to_string() == range)
}

/// Gives a cluster's number back, if it has one.
///
/// # Errors
/// If its claim cannot be removed.
pub fn release(identity: &str) -> io::Result<()> {
    release_below(Path::new(CLAIMS), identity)
}

/// An error that names the failed action and its path.
fn cannot(what: &str, path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("cannot {what} {}: {error}", path.display()))
}

/// Held while claims are read or changed.
fn lock(directory: &Path) -> io::Result<File> {
    let file = File::open(directory).map_err(cannot("lock", directory))?;
    file.lock().map_err(cannot("lock", directory))?;
    Ok(file)
}

fn file(directory: &Path, number: u8) -> PathBuf {
    directory.join(number.to_string())
}

/// The owner of a number; empty: none.
fn owner(directory: &Path, number: u8) -> String {
    std::fs::read_to_string(file(directory, number)).unwrap_or_default()
}

fn number_of(directory: &Path, identity: &str) -> Option<u8> {
    (0..NETWORKS).find(|number| owner(directory, *number) == identity)
}

fn claim_below(
    directory: &Path,
    (identity, last): (&str, Option<u8>),
    is_used: impl Fn(u8) -> bool,
) -> io::Result<u8> {
    std::fs::create_dir_all(directory).map_err(cannot("make", directory))?;
    let _lock = lock(directory)?;
    if let Some(own) = number_of(directory, identity) {
        return Ok(own);
    }
    // Different clusters begin at different places, so that they rarely meet.
    let start = identity.bytes().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)) % NETWORKS;
    forget_the_gone(directory);
    let free = |number: &u8| owner(directory, *number).is_empty() && !is_used(*number);
    let others = (0..NETWORKS).map(|step| (start + step) % NETWORKS);
    let last = last.filter(|last| *last < NETWORKS);
    let Some(number) = last.into_iter().chain(others).find(free) else {
        let why = format!("all {NETWORKS} networks for local clusters are in use on this machine");
        return Err(io::Error::other(why));
    };
    let path = file(directory, number);
    std::fs::write(&path, identity).map_err(cannot("write", &path))?;
    Ok(number)
}

/// Removes claims of clusters without a directory.
fn forget_the_gone(directory: &Path) {
    let is_gone = |number: &u8| {
        let owner = owner(directory, *number);
        !owner.is_empty() && !Path::new(&owner).exists()
    };
    for number in (0..NETWORKS).filter(is_gone) {
        // One that stays only means that its number is not given out.
        let _ = std::fs::remove_file(file(directory, number));
    }
}

fn release_below(directory: &Path, identity: &str) -> io::Result<()> {
    if !directory.exists() {
        return Ok(());
    }
    let _lock = lock(directory)?;
    let Some(own) = number_of(directory, identity) else { return Ok(()) };
    let path = file(directory, own);
    std::fs::remove_file(&path).map_err(cannot("remove", &path))
}

/// Whether this machine has a route into the networks of a number. Columns of `/proc/net/route`: interface, destination and
/// so on; addresses in hexadecimal with the last byte first; the eighth is the mask.
fn is_used(number: u8, routes: &str) -> bool {
    let overlay = overlay(number).nth(0).unwrap_or(Ipv4Addr::UNSPECIFIED);
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
    fn a_number_is_one_clusters_until_it_is_given_back() {
        let directory = tempfile::tempdir().unwrap();
        let (claims, free) = (directory.path().join("networks"), |_| false);
        release_below(&claims, "/").unwrap();
        let clusters = ["a", "b"].map(|name| {
            let path = directory.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path.display().to_string()
        });
        let numbers = clusters.each_ref().map(|cluster| claim_below(&claims, (cluster, None), free).unwrap());
        assert_ne!(numbers[0], numbers[1]);
        assert_eq!(
            claim_below(&claims, (&clusters[0], None), |_| true).unwrap(),
            numbers[0],
            "its own stays"
        );
        assert!(claim_below(&claims, ("/", None), |_| true).is_err());
        // One is gone without a word, the other gives its number back.
        std::fs::remove_dir(&clusters[0]).unwrap();
        assert_eq!(claim_below(&claims, ("/", None), |number| number != numbers[0]).unwrap(), numbers[0]);
        assert!(claim_below(&claims, ("/tmp", None), |number| number != numbers[1]).is_err());
        release_below(&claims, &clusters[1]).unwrap();
        assert_eq!(claim_below(&claims, ("/tmp", None), |number| number != numbers[1]).unwrap(), numbers[1]);
        release_below(&claims, "/").unwrap();
        release_below(&claims, "/tmp").unwrap();
        assert_eq!(std::fs::read_dir(&claims).unwrap().count(), 0);
    }

    /// After a start of the host there are no claims, and other routes.
    #[test]
    fn a_cluster_gets_the_number_that_it_had_if_that_is_free() {
        let directory = tempfile::tempdir().unwrap();
        let claims = directory.path().join("networks");
        let first = claim_below(&claims, ("/", None), |_| false).unwrap();
        release_below(&claims, "/").unwrap();
        let other = (first + 40) % NETWORKS;
        assert_eq!(claim_below(&claims, ("/", Some(other)), |_| false).unwrap(), other);
        release_below(&claims, "/").unwrap();
        assert_eq!(claim_below(&claims, ("/", Some(other)), |number| number == other).unwrap(), first);
        release_below(&claims, "/").unwrap();
        assert_eq!(claim_below(&claims, ("/", Some(200)), |_| false).unwrap(), first);
        for number in [0, 74, 111] {
            assert_eq!(of_overlay(&overlay(number).to_string()), Some(number));
        }
        assert_eq!(of_overlay("10.0.0.0/8"), None);
    }

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
