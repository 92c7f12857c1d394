//! Counters of the guest's TCP traffic with addresses beyond the cluster, for `spec.enableNetworkMonitoring`. The kernel counts in
//! nftables, and reports the counters only to processes with `NET_ADMIN` in the pod's network namespace.

use neonvm_types::node_protocol::{TAP, Traffic};

use super::Error;
use super::program::run;

/// Names of the counters.
const INGRESS: &str = "vm_ingress";
const EGRESS: &str = "vm_egress";
/// Addresses whose traffic is not counted: this host, private networks, and the link.
const NEAR_V4: &str =
    "{ 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16 }";
const NEAR_V6: &str = "{ ::1, fc00::/7, fe80::/10 }";

/// The declarations of the counters, within the table.
pub(super) fn counters() -> String {
    format!(" counter {INGRESS} {{\n }}\n counter {EGRESS} {{\n }}\n")
}

/// The rules that count, within the chain of forwarded packets: there a peer's address is not translated in either direction.
pub(super) fn rules() -> String {
    let mut text = String::new();
    for (family, near) in [("ip", NEAR_V4), ("ip6", NEAR_V6)] {
        text.push_str(&format!(
            "  oifname \"{TAP}\" meta l4proto tcp {family} saddr != {near} counter name {INGRESS}\n  \
             iifname \"{TAP}\" meta l4proto tcp {family} daddr != {near} counter name {EGRESS}\n"
        ));
    }
    text
}

/// The counters of this network namespace.
pub(super) fn read() -> Result<Traffic, Error> {
    let text = run("nft", &["list", "counters", "table", "inet", "neonvm"], "")?;
    parse(&text).ok_or(Error::NotCounted)
}

/// Reads `counter vm_ingress { packets 3 bytes 180 } counter …`.
fn parse(line: &str) -> Option<Traffic> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let bytes = |name: &str| {
        let at = words.windows(2).position(|pair| pair == ["counter", name])?;
        let mut rest = words.get(at..)?.iter().skip_while(|word| **word != "bytes");
        rest.nth(1)?.parse().ok()
    };
    Some(Traffic { ingress: bytes(INGRESS)?, egress: bytes(EGRESS)? })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;

    use neonvm_test_support::{lab, need};
    use neonvm_types::node_protocol::GUEST;

    use super::super::{forwarding, nft};
    use super::*;

    #[test]
    fn counters_are_read_by_name() {
        let line = "table inet neonvm { counter vm_ingress { packets 3 bytes 180 } counter vm_egress { packets 1 bytes 52 } }";
        assert_eq!(parse(line), Some(Traffic { ingress: 180, egress: 52 }));
        for wrong in
            ["", "Error: No such file", "counter vm_ingress { packets 3 bytes }", "counter vm_ingress"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    fn ip(lines: &str) {
        run("ip", &["-batch", "-"], lines).unwrap_or_else(|error| panic!("{error}"));
    }

    /// A thread in a network namespace of its own, in which it works on what it is sent.
    struct Host {
        work: mpsc::Sender<Box<dyn FnOnce() + Send>>,
        _namespace: lab::Namespace,
    }

    impl Host {
        /// Its interface is the other end of a cable to `name`, with these addresses.
        fn behind(name: &str, addresses: &[&str], gateway: &str) -> Self {
            let (work, arrived) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
            let namespace = lab::Namespace::new(name);
            ip(&format!(
                "link add {name} type veth peer name cable netns {}\nlink set {name} up\n",
                namespace.name()
            ));
            namespace.spawn(move || arrived.into_iter().for_each(|work| work()));
            let mut lines = String::from("link set cable up\n");
            for address in addresses {
                lines.push_str(&format!("address add {address} dev cable\n"));
            }
            lines.push_str(&format!("route add default via {gateway}\n"));
            let host = Self { work, _namespace: namespace };
            host.works(move || ip(&lines));
            host
        }

        /// Waits until it is done.
        fn works<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
            let (done, result) = mpsc::channel();
            self.work.send(Box::new(move || done.send(work()).expect("received"))).expect("a thread");
            result.recv().expect("done")
        }
    }

    /// The guest sends 20,000 bytes and gets 10,000.
    fn exchange(guest: &Host, outside: &Host, address: &'static str) {
        let listener = outside.works(move || TcpListener::bind((address, 7000)).expect("bound"));
        let client = guest.works(move || TcpStream::connect((address, 7000)).expect("connected"));
        let (mut client, mut server) = (client, listener.accept().expect("accepted").0);
        client.write_all(&[0; 20_000]).expect("sent");
        server.read_exact(&mut [0; 20_000]).expect("received");
        server.write_all(&[0; 10_000]).expect("sent");
        client.read_exact(&mut [0; 10_000]).expect("received");
    }

    #[test]
    fn tcp_with_public_addresses_is_counted_and_nothing_else() {
        need!(lab::inside("traffic", || {
            let outside = Host::behind("eth0", &["198.51.100.1/24", "10.9.9.1/24"], "198.51.100.2");
            let guest = Host::behind(TAP, &[&format!("{GUEST}/30")], "169.254.254.253");
            ip(&format!(
                "address add 198.51.100.2/24 dev eth0\naddress add 10.9.9.2/24 dev eth0\n\
                 address add 169.254.254.253/30 dev {TAP}\n"
            ));
            for name in ["eth0", TAP] {
                forwarding::set(name, forwarding::Kind::Forward).expect("forwarding");
            }
            run("nft", &["-f", "-"], &nft::rules("eth0", &BTreeSet::new(), None, None, true)).expect("rules");
            assert_eq!(read().expect("counters"), Traffic::default());
            exchange(&guest, &outside, "10.9.9.1");
            assert_eq!(read().expect("counters"), Traffic::default(), "private addresses do not count");
            exchange(&guest, &outside, "198.51.100.1");
            let traffic = read().expect("counters");
            assert!((10_000..20_000).contains(&traffic.ingress) && traffic.egress > 20_000, "{traffic:?}");
            run("nft", &["-f", "-"], &nft::rules("eth0", &BTreeSet::new(), None, None, false))
                .expect("rules");
            assert!(matches!(read(), Err(Error::NotCounted)));
        }));
    }
}
