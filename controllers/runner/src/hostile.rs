//! What reads bytes of the guest, for fuzzers: the rest of the crate is one program.

use std::net::Ipv4Addr;

use tokio::sync::mpsc;

use crate::guest::{report, usage};
use crate::network::dhcp::{Lease, answer};

/// Reads metrics of a guest.
pub fn usage(text: &str) {
    usage::parse(text);
}

/// Reads the report port until its end.
pub fn reports(bytes: &[u8]) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else { return };
    let (events, mut read) = mpsc::channel(1);
    runtime.block_on(async {
        tokio::join!(report::read(bytes, events), async { while read.recv().await.is_some() {} });
    });
}

/// Answers a message of a DHCP client.
pub fn dhcp(message: &[u8]) {
    let lease = Lease {
        hardware: [0x52, 0x54, 0, 0, 0, 1],
        address: Ipv4Addr::new(10, 0, 0, 2),
        mask: Ipv4Addr::new(255, 255, 255, 252),
        gateway: Ipv4Addr::new(10, 0, 0, 1),
        name_servers: vec![Ipv4Addr::new(10, 96, 0, 10)],
        search: vec!["svc.cluster.local".to_owned()],
        mtu: 1450,
        hostname: "vm".to_owned(),
    };
    answer(message, &lease);
}
