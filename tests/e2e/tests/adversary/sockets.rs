//! Sockets that processes listen on, as the kernel shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

use neonvm_test_support::eventually_blocking;

use crate::cluster::{Cluster, Process};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ListenAddress {
    Tcp(SocketAddr),
    Udp(SocketAddr),
    /// Its path.
    Unix(String),
}

/// A socket, and who has it: a service, another program, or `kernel`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Listener {
    pub(crate) role: String,
    pub(crate) place: ListenAddress,
}

/// Services of a cluster that listen, by the name of their subcommand.
const SERVICES: [&str; 5] = ["apiserver", "vm-controller", "scheduler", "agent", "kubelet"];

/// What the services of a cluster listen on, once each of them does: a cluster is ready as soon as its node is.
pub(crate) fn listeners_of(cluster: &Cluster) -> BTreeSet<Listener> {
    eventually_blocking(
        || "each service listens".into(),
        || {
            let found = listeners(&cluster.processes());
            let listens = |role: &&&str| found.iter().any(|listener| listener.role == **role);
            match SERVICES.iter().find(|role| !listens(role)) {
                None => Ok(found),
                Some(missing) => Err(format!("no listener of {missing}: {found:?}")),
            }
        },
    )
}

/// What these processes listen on, wherever: a process may hold sockets of network namespaces that it is not in. In those the
/// kernel's own sockets are theirs too.
pub(crate) fn listeners(processes: &[Process]) -> BTreeSet<Listener> {
    let mut held: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    for process in processes {
        for inode in inodes(process.pid) {
            held.entry(inode).or_default().insert(&process.role);
        }
    }
    let mut found = BTreeSet::new();
    for (space, sockets) in tables(processes) {
        let roles = |inode: &u64| held.get(inode).into_iter().flatten().copied();
        let listener =
            |role: &str, place: &ListenAddress| Listener { role: role.to_owned(), place: place.clone() };
        let mine: Vec<Listener> = sockets
            .iter()
            .flat_map(|(inode, place)| roles(inode).map(|role| listener(role, place)))
            .collect();
        if space == Space::Pods && !mine.is_empty() {
            // The kernel's sockets have no number.
            let kernel = sockets.iter().filter(|(inode, _)| *inode == 0);
            found.extend(kernel.map(|(_, place)| listener("kernel", place)));
        }
        found.extend(mine);
    }
    found
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    /// That of this test.
    Host,
    /// Another one.
    Pods,
}

/// The sockets of all network namespaces that these processes are in, and of all that have a name.
fn tables(processes: &[Process]) -> Vec<(Space, Vec<(u64, ListenAddress)>)> {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let host = namespace("self");
    let mut by_process = BTreeMap::new();
    for process in processes {
        if let Some(space) = namespace(&process.pid.to_string()) {
            by_process.insert(space, process.pid);
        }
    }
    let read = |pid: u32| {
        sockets(|name| std::fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default())
    };
    let kind = |space: &PathBuf| if Some(space) == host.as_ref() { Space::Host } else { Space::Pods };
    let mut all: Vec<_> = by_process.iter().map(|(space, pid)| (kind(space), read(*pid))).collect();
    let named = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    all.extend(named.map(|entry| {
        let inside = |name: &str| {
            let mut cat = Command::new("ip");
            cat.args(["netns", "exec"])
                .arg(entry.file_name())
                .args(["cat", &format!("/proc/self/net/{name}")]);
            cat.output()
                .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
                .unwrap_or_default()
        };
        (Space::Pods, sockets(inside))
    }));
    all
}

/// Sockets that a process holds.
fn inodes(pid: u32) -> BTreeSet<u64> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    targets.filter_map(|to| to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()).collect()
}

/// Listening sockets of a network namespace, by number; `read` reads a file of its `/proc/net`.
fn sockets(read: impl Fn(&str) -> String) -> Vec<(u64, ListenAddress)> {
    let mut all = Vec::new();
    for name in ["tcp", "tcp6"] {
        let listening = read(name);
        let listening = listening.lines().filter_map(internet).filter(|(state, ..)| *state == 0x0A);
        all.extend(listening.map(|(_, inode, address)| (inode, ListenAddress::Tcp(address))));
    }
    for name in ["udp", "udp6"] {
        // 7: bound, and connected to no peer.
        let bound = read(name);
        let bound = bound.lines().filter_map(internet).filter(|(state, ..)| *state == 7);
        all.extend(bound.map(|(_, inode, address)| (inode, ListenAddress::Udp(address))));
    }
    all.extend(read("unix").lines().filter_map(unix));
    all
}

/// State, number and local address in a line of `/proc/net/tcp`.
fn internet(line: &str) -> Option<(u8, u64, SocketAddr)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (address, port) = words.get(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let state = u8::from_str_radix(words.get(3)?, 16).ok()?;
    // Each word of an address is in the order of the computer.
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = if address.len() == 8 {
        IpAddr::from(Ipv4Addr::from(word(0)?))
    } else {
        let bytes = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
        IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))
    };
    Some((state, words.get(9)?.parse().ok()?, SocketAddr::new(ip.to_canonical(), port)))
}

/// Number and path of a listening socket in a line of `/proc/net/unix`.
fn unix(line: &str) -> Option<(u64, ListenAddress)> {
    const ACCEPTS: u32 = 1 << 16;
    let words: Vec<&str> = line.split_whitespace().collect();
    let flags = u32::from_str_radix(words.get(3)?, 16).ok()?;
    let path = words.get(7).copied().unwrap_or_default();
    (flags & ACCEPTS != 0).then_some((words.get(6)?.parse().ok()?, ListenAddress::Unix(path.to_owned())))
}

#[test]
fn lines_of_the_kernel_are_understood() {
    let line = "  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1 0 100 0 0 10 0";
    assert_eq!(internet(line), Some((0x0A, 4242, "127.0.0.1:8080".parse().unwrap())));
    let line = "  1: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 7 1";
    assert_eq!(internet(line), Some((0x0A, 7, "[::1]:22".parse().unwrap())));
    let line = "0000: 00000002 00000000 00010000 0001 01 99 /run/x.sock";
    assert_eq!(unix(line), Some((99, ListenAddress::Unix("/run/x.sock".into()))));
    assert_eq!(unix("0000: 00000003 00000000 00000000 0001 03 99"), None);
}
