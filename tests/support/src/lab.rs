//! Network namespaces for tests.

use std::net::Ipv4Addr;
use std::process::Command;
use std::thread::JoinHandle;

use crate::{Need, needs};

/// A network namespace that is removed when this goes out of scope; it lives on until its last thread has ended.
#[derive(Debug)]
pub struct Namespace(String);

impl Namespace {
    /// Needs [`needs::network_namespaces`].
    pub fn new(what: &str) -> Self {
        let name = format!("nvr{}-{what}", std::process::id());
        ip(&format!("netns add {name}"));
        Self(name)
    }

    /// Its name, for `ip`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Runs something in it, on a thread of its own.
    pub fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let namespace = std::fs::File::open(format!("/run/netns/{}", self.0)).expect("a namespace");
        std::thread::spawn(move || {
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), kind)
                .expect("root may enter");
            work()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).output().expect("ip");
    assert!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Runs a test in a separate network namespace: that of a new thread, which ends with the test.
pub fn inside(what: &str, test: impl FnOnce() + Send + 'static) -> Need {
    needs::network_namespaces()?;
    let result = Namespace::new(what).spawn(test).join();
    result.expect("well");
    Ok(())
}

/// A frame with a packet of IPv4, whose content begins with two ports: from and to a hardware address, from and to an address. It fills
/// its frame: where bridges give packets to the rules of the host, padding is cut off, and the checksum of the header must be right.
pub fn packet(
    (source, target): ([u8; 6], [u8; 6]),
    (from, to): (Ipv4Addr, Ipv4Addr),
    protocol: u8,
    port: u16,
    text: &[u8],
) -> Vec<u8> {
    let ports = [40_000_u16.to_be_bytes(), port.to_be_bytes()].concat();
    let mut content = if protocol == 6 {
        // The header has no options, and it opens a connection.
        [&ports[..], &[0; 8], &[0x50, 2], text].concat()
    } else {
        [&ports[..], &[0, 26, 0, 0], text].concat()
    };
    content.resize(26, 0);
    let begin = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, protocol];
    let addresses = [from.octets(), to.octets()].concat();
    let words = |bytes: &[u8]| -> u32 {
        bytes
            .chunks_exact(2)
            .filter_map(|two| two.try_into().ok())
            .map(|two| u32::from(u16::from_be_bytes(two)))
            .sum()
    };
    let sum = words(&begin) + words(&addresses);
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).expect("folded once");
    let ip = [&begin[..], &sum.to_be_bytes(), &addresses].concat();
    [&target[..], &source, &[8, 0], &ip, &content].concat()
}
