//! Counters of the guest's TCP traffic with addresses beyond the cluster, for `spec.enableNetworkMonitoring`.
//!
//! The kernel counts in nftables ([`RULES`]), and reports these counters only to processes with `NET_ADMIN`, which the runner drops
//! before the guest runs. A child process keeps it, and no other capability: a shell that lists the counters once for each line on its
//! standard input. It interprets nothing that it reads there, and it ends with the runner.

use std::io;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use neonvm_hypervisor::rights;
use rustix::thread::CapabilitySet;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::Mutex;

use super::TAP_NAME;
use crate::config::PROGRAMS;

/// One line of counters for each line that arrives.
const SCRIPT: &str = "while read -r _; do echo $(nft list counters table inet neonvm 2>&1); done";
/// Time for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// An answer, or its failure, is repeated for so long: clients without a certificate may ask.
const FRESH: Duration = Duration::from_secs(1);
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
            "  oifname \"{TAP_NAME}\" meta l4proto tcp {family} saddr != {near} counter name {INGRESS}\n  \
             iifname \"{TAP_NAME}\" meta l4proto tcp {family} daddr != {near} counter name {EGRESS}\n"
        ));
    }
    text
}

/// Bytes since the runner started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// To the guest.
    pub(crate) ingress: u64,
    /// From the guest.
    pub(crate) egress: u64,
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

/// The process that reads the counters.
#[derive(Debug)]
pub(crate) struct Meter {
    child: Child,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    requests: ChildStdin,
    lines: BufReader<ChildStdout>,
    /// When the kernel was asked the last time, whatever came of it.
    asked: Option<Instant>,
    reading: Reading,
    /// Requests whose answer has not arrived in time.
    late: u32,
}

/// What a scrape gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The last counters that were read.
    pub(crate) traffic: Traffic,
    /// How often they could not be read.
    pub(crate) errors: u64,
}

impl Meter {
    /// Starts the process. To be called in a runtime, before the capabilities are dropped.
    pub(crate) fn start() -> io::Result<Self> {
        // Capabilities belong to threads, and a process gets those of the thread that starts it.
        let spawn = || {
            rights::give_up(CapabilitySet::NET_ADMIN)?;
            let mut command = Command::new("/bin/sh");
            command.args(["-c", SCRIPT]).env_clear().env("PATH", PROGRAMS).current_dir("/");
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
        };
        let mut child =
            std::thread::spawn(spawn).join().map_err(|_| io::Error::other("internal: panic"))??;
        let (requests, lines) =
            child.stdin.take().zip(child.stdout.take()).ok_or(io::ErrorKind::BrokenPipe)?;
        let state = State {
            requests: ChildStdin::from_std(requests)?,
            lines: BufReader::new(ChildStdout::from_std(lines)?),
            asked: None,
            reading: Reading::default(),
            late: 0,
        };
        Ok(Self { child, state: Mutex::new(state) })
    }

    /// The counters, at most [`FRESH`] old; if they cannot be read, the last ones, with one error more.
    pub(crate) async fn read(&self) -> Reading {
        let mut state = self.state.lock().await;
        if state.asked.is_none_or(|at| at.elapsed() >= FRESH) {
            match state.ask().await {
                Ok(traffic) => state.reading.traffic = traffic,
                Err(error) => {
                    tracing::warn!(%error, "the network counters cannot be read");
                    state.reading.errors += 1;
                }
            }
            state.asked = Some(Instant::now());
        }
        state.reading
    }
}

impl State {
    async fn ask(&mut self) -> io::Result<Traffic> {
        let asked = tokio::time::timeout(PATIENCE, async {
            self.requests.write_all(b"\n").await?;
            self.late += 1;
            let mut line = String::new();
            // Answers to earlier requests come first.
            while self.late > 0 {
                line.clear();
                if self.lines.read_line(&mut line).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.late -= 1;
            }
            parse(&line).ok_or_else(|| io::Error::other(line.trim().to_owned()))
        });
        asked.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;

    use neonvm_test_support::need;

    use super::super::{GUEST, forwarding, interface::run, lab, nft};
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
            let guest = Host::behind(TAP_NAME, &[&format!("{GUEST}/30")], "169.254.254.253");
            ip(&format!(
                "address add 198.51.100.2/24 dev eth0\naddress add 10.9.9.2/24 dev eth0\n\
                 address add 169.254.254.253/30 dev {TAP_NAME}\n"
            ));
            for name in ["eth0", TAP_NAME] {
                forwarding::set(name, forwarding::Kind::Forward).expect("forwarding");
            }
            run("nft", &["-f", "-"], &nft::rules("eth0", &[], None, None, true)).expect("rules");
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let meter = Meter::start().expect("started");
                let status =
                    std::fs::read_to_string(format!("/proc/{}/status", meter.child.id())).expect("alive");
                for line in ["CapPrm:\t0000000000001000", "CapBnd:\t0000000000001000", "NoNewPrivs:\t1"] {
                    assert!(status.contains(line), "{line} is not in {status}");
                }
                assert_eq!(meter.read().await, Reading::default());
                exchange(&guest, &outside, "10.9.9.1");
                tokio::time::sleep(FRESH).await;
                assert_eq!(meter.read().await, Reading::default(), "private addresses do not count");
                exchange(&guest, &outside, "198.51.100.1");
                tokio::time::sleep(FRESH).await;
                let Reading { traffic, errors } = meter.read().await;
                assert!((10_000..20_000).contains(&traffic.ingress), "{traffic:?}");
                assert!(traffic.egress > 20_000 && errors == 0, "{traffic:?}");
                run("nft", &["delete", "table", "inet", "neonvm"], "").expect("deleted");
                tokio::time::sleep(FRESH).await;
                for _ in 0..2 {
                    assert_eq!(
                        meter.read().await,
                        Reading { traffic, errors: 1 },
                        "the last ones, and one error"
                    );
                }
            });
        }));
    }
}
