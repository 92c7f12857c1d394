//! Rules come back after another program has flushed them: the kernel announces each change of its tables.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use neonvm_kit::private;
use neonvm_kit::reserve::Reserve;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep, timeout};

use super::{ensure, xtables};
use crate::sys;

/// `NFNLGRP_NFTABLES` of linux/netfilter/nfnetlink.h, as a bit: changes of tables, chains and rules.
const CHANGES: u32 = 1 << 6;
/// Least time between looks: changes come in groups. Doubles while they continue.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));
/// Time between looks without changes: the legacy variant of iptables announces nothing, others rarely lose an announcement.
const LOOKS: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(600));

/// The rules of a cluster, and what could not be done about them.
#[derive(Debug)]
pub struct Watch {
    cluster: String,
    file: PathBuf,
    /// None: changes are not announced.
    changes: Option<AsyncFd<OwnedFd>>,
    /// What is in the file.
    known: Vec<String>,
}

impl Watch {
    /// Adds the rules of a cluster. What could not be done is written to the file, as a list of lines in JSON; there is no file without
    /// problems.
    pub async fn begin(cluster: &str, file: PathBuf) -> Self {
        // Before the first look, so that no change is missed.
        let changes = subscribe();
        let changes = changes
            .inspect_err(|error| tracing::debug!(%error, "changes of the firewall are not announced"))
            .ok();
        let _ = std::fs::remove_file(&file);
        let mut watch = Self { cluster: cluster.to_owned(), file, changes, known: Vec::new() };
        watch.look().await;
        watch
    }

    /// Keeps the rules until it is dropped.
    pub async fn keep(mut self) {
        let mut pause = PAUSES.0;
        loop {
            // Our own changes were announced, too.
            sleep(pause).await;
            let waits = Instant::now();
            let look = if self.changes.is_none() || legacy() { LOOKS.0 } else { LOOKS.1 };
            let changed = match &self.changes {
                Some(socket) => timeout(look, changed(socket)).await.is_ok(),
                None => {
                    sleep(look).await;
                    false
                }
            };
            let busy = changed && waits.elapsed() < pause;
            pause = if busy { (pause * 2).min(PAUSES.1) } else { PAUSES.0 };
            self.look().await;
        }
    }

    async fn look(&mut self) {
        let unknown = |error| vec![format!("the firewall of this host cannot be read: {error}")];
        let problems = ensure(&self.cluster).await.unwrap_or_else(unknown);
        if problems == self.known {
            return;
        }
        problems.iter().for_each(|problem| tracing::warn!(problem));
        match publish(&self.file, &problems) {
            Ok(()) => self.known = problems,
            Err(error) => tracing::warn!(%error, "problems with the firewall cannot be written down"),
        }
    }
}

fn legacy() -> bool {
    ["ip", "ip6"].iter().any(|family| !xtables::legacy_tables(family).is_empty())
}

fn publish(file: &Path, problems: &[String]) -> io::Result<()> {
    if problems.is_empty() {
        return match std::fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    let text = serde_json::to_vec(problems)?;
    let directory = file.parent().unwrap_or(Path::new("."));
    Reserve::from_directory(directory).lend(|| private::replace(file, &text))
}

fn subscribe() -> io::Result<AsyncFd<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(NETFILTER))?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, CHANGES))?;
    sys::watched(socket)
}

/// Waits for a change, and takes all that are announced.
async fn changed(socket: &AsyncFd<OwnedFd>) {
    let mut buffer = [0_u8; 4096];
    let mut any = false;
    loop {
        let Ok(mut ready) = socket.readable().await else { return std::future::pending().await };
        let received = ready.try_io(|socket| {
            Ok(rustix::net::recv(socket.get_ref(), &mut buffer, RecvFlags::TRUNC).map(|_| ())?)
        });
        match received {
            // More was announced than fits: something has changed.
            Ok(_) => any = true,
            Err(_) if any => return,
            Err(_) => {}
        }
    }
}
