//! In a network namespace that stands for the host: with the tables that other programs make, with packets.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Command;

use neonvm_test_support::{Missing, Need, eventually, need, needs};

use super::*;

/// The two lines that make a host of the kind.
const NFT: &str = "table ip filter { chain FORWARD { type filter hook forward priority 0; policy drop; }; }";
const FIREWALLD_TABLE: &str = "table inet firewalld { chain filter_FORWARD { type filter hook forward priority 10; policy accept; \
    ct state { established, related } accept; jump zones; ct state invalid drop; reject with icmpx admin-prohibited; }; \
    chain zones { iifname eth9 accept; }; }";

fn docker(program: &str) -> String {
    let lines = [
        "-N DOCKER",
        "-N DOCKER-USER",
        "-N DOCKER-ISOLATION-STAGE-1",
        "-N DOCKER-ISOLATION-STAGE-2",
        "-P FORWARD DROP",
        "-A FORWARD -j DOCKER-USER",
        "-A FORWARD -j DOCKER-ISOLATION-STAGE-1",
        "-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "-A FORWARD -o docker0 -j DOCKER",
        "-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2",
        "-A DOCKER-ISOLATION-STAGE-1 -j RETURN",
        "-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP",
        "-A DOCKER-USER -j RETURN",
    ];
    lines.map(|line| format!("{program} {line}")).join(" && ")
}

/// ufw, as its chains are behind `ufw enable`.
fn ufw(program: &str) -> String {
    let lines = [
        "-N ufw-before-forward",
        "-N ufw-reject-forward",
        "-P FORWARD DROP",
        "-A FORWARD -j ufw-before-forward",
        "-A FORWARD -j ufw-reject-forward",
        "-A ufw-before-forward -p icmp --icmp-type echo-request -j RETURN",
        "-A ufw-reject-forward -j REJECT",
    ];
    lines.map(|line| format!("{program} {line}")).join(" && ")
}

fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{script}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// A host with two nodes on the bridge of a cluster, and a computer beyond it. Removed when dropped.
struct Host {
    name: String,
    cluster: String,
}

impl Host {
    fn new() -> Self {
        let cluster = format!("firewall-{}-{:?}", std::process::id(), std::thread::current().id());
        let host = Self { name: format!("t{}", naming::cluster_hash(&cluster)), cluster };
        let (name, bridge) = (&host.name, naming::bridge(&host.cluster));
        sh(&format!("ip netns add {name}"));
        host.run("sysctl -qw net.ipv4.ip_forward=1");
        host.run(&format!("ip link add {bridge} up type bridge forward_delay 0"));
        host.run(&format!("ip addr add 10.1.0.254/24 dev {bridge}"));
        for (end, address, gateway) in [
            ("a", "10.1.0.1", "10.1.0.254"),
            ("b", "10.1.0.2", "10.1.0.254"),
            ("o", "10.2.0.1", "10.2.0.254"),
        ] {
            sh(&format!(
                "ip netns add {name}{end}; ip -n {name} link add v{end} up type veth peer name eth0 netns {name}{end}; \
                 ip -n {name}{end} addr add {address}/24 dev eth0; ip -n {name}{end} link set eth0 up; \
                 ip -n {name}{end} route add default via {gateway}"
            ));
        }
        host.run(&format!(
            "ip link set va master {bridge}; ip link set vb master {bridge}; ip addr add 10.2.0.254/24 dev vo"
        ));
        host
    }

    fn namespace(&self) -> OwnedFd {
        super::super::open_namespace(&self.name).unwrap()
    }

    fn run(&self, script: &str) -> String {
        let inside = format!("ip netns exec {} sh -ec '{script}'", self.name);
        sh(&inside)
    }

    /// Runs our own work on the host.
    fn work<T: Send + 'static>(&self, work: impl AsyncFnOnce(String) -> io::Result<T> + Send + 'static) -> T {
        let cluster = self.cluster.clone();
        let inside = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(work(cluster))
        };
        crate::sys::in_network(self.namespace(), inside).unwrap()
    }

    fn ensure(&self) -> Vec<String> {
        self.work(async |cluster| ensure(&cluster).await)
    }

    fn pings(&self, from: &str, to: &str) -> bool {
        let inside = format!("{}{from}", self.name);
        let arguments = ["netns", "exec", &inside, "ping", "-c1", "-W1", to];
        Command::new("ip").args(arguments).output().unwrap().status.success()
    }

    /// From a node to the other, and to a computer beyond the host.
    fn reaches(&self) -> (bool, bool) {
        (self.pings("a", "10.1.0.2"), self.pings("a", "10.2.0.1"))
    }

    /// All rules, without their counters.
    fn rules(&self) -> String {
        let has = |program: &str| needs::program(program).is_ok();
        let legacy = if has("iptables-legacy") && !self.run("cat /proc/net/ip_tables_names").is_empty() {
            self.run("iptables-legacy -S")
        } else {
            String::new()
        };
        self.run("nft -s list ruleset") + &legacy
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for end in ["", "a", "b", "o"] {
            let name = format!("{}{end}", self.name);
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
        let _ = std::fs::remove_dir_all(host::directory(&self.cluster));
    }
}

fn lab() -> Need {
    needs::network_namespaces()?;
    needs::programs(&["ping", "sysctl"])
}

fn has(program: &str) -> Need {
    lab()?;
    needs::program(program).map(drop)
}

/// Frames between nodes pass the chains of the host where bridges call them.
fn bridged() -> Need {
    let path = PathBuf::from("/proc/sys/net/bridge/bridge-nf-call-iptables");
    path.exists().then_some(()).ok_or_else(|| Missing::unavailable("br_netfilter is not loaded"))
}

/// Nothing passes; then everything that should, and what comes from elsewhere does not; then the host is as it was.
fn is_mended(made_by: &str) {
    let host = Host::new();
    assert_eq!(host.reaches(), (true, true), "without a firewall");
    assert_eq!((host.ensure(), host.rules()), (vec![], String::new()));
    host.run(made_by);
    let before = host.rules();
    assert_eq!(host.reaches(), (bridged().is_err(), false), "{before}");
    assert_eq!(host.ensure(), Vec::<String>::new());
    assert_eq!(host.reaches(), (true, true), "{}", host.rules());
    assert!(!host.pings("o", "10.1.0.1"), "only what belongs to a connection returns: {}", host.rules());
    let after = host.rules();
    assert_eq!((host.ensure(), host.rules()), (vec![], after), "a second pass changes nothing");
    host.work(async |cluster| remove(&cluster).await);
    assert_eq!(host.rules(), before);
}

#[test]
fn a_policy_of_nft() {
    need!(lab());
    is_mended(&format!("nft \"{NFT}\""));
}

#[test]
fn a_policy_of_both_families_in_a_table_of_another_name() {
    need!(lab());
    is_mended(
        "nft \"table inet strict { chain passing { type filter hook forward priority 0; policy drop; }; }\"",
    );
}

#[test]
fn docker_with_nftables() {
    need!(has("iptables-nft"));
    is_mended(&docker("iptables-nft"));
}

#[test]
fn docker_with_legacy_iptables() {
    need!(has("iptables-legacy"));
    is_mended(&docker("iptables-legacy"));
}

#[test]
fn ufw_and_firewalld_at_once() {
    need!(has("iptables-nft"));
    is_mended(&format!("{}; nft \"{FIREWALLD_TABLE}\"", ufw("iptables-nft")));
}

/// `iptables` refuses to list a table with rules that it cannot read: it would stop working for its owner.
#[test]
fn iptables_reads_its_table_afterwards() {
    need!(has("iptables-nft"));
    let host = Host::new();
    host.run(&docker("iptables-nft"));
    assert_eq!(host.ensure(), Vec::<String>::new());
    let rules = host.run("iptables-nft -S FORWARD");
    assert_eq!(rules.matches(&naming::rule_comment(&host.cluster)).count(), RULES, "{rules}");
}

/// A chain that cannot be changed is named, with what to do.
#[test]
fn a_chain_that_stays_is_named() {
    need!(lab());
    let host = Host::new();
    host.run(
        "nft \"table bridge strict { chain passing { type filter hook forward priority 0; policy drop; }; }\"",
    );
    let problems = host.ensure();
    assert!(problems.len() == 1 && problems[0].contains("bridge strict passing (nft)"), "{problems:?}");
}

/// Another program flushes its chains, as at its restart: the rules come back.
#[test]
fn rules_come_back() {
    need!(has("iptables-nft"));
    let host = Host::new();
    host.run(&format!("nft \"{NFT}\""));
    let (name, comment) = (host.name.clone(), naming::rule_comment(&host.cluster));
    let file = tempfile::tempdir().unwrap().keep().join("firewall.json");
    let path = file.clone();
    host.work(async move |cluster| {
        let watch = Watch::begin(&cluster, file).await;
        let run = |script: &str| sh(&format!("ip netns exec {name} {script}"));
        // iptables keeps the comment where nft does not show it.
        let is_there =
            || run("nft list ruleset").contains(&comment) || run("iptables-nft -S").contains(&comment);
        assert!(is_there());
        let keep = tokio::spawn(watch.keep());
        for _ in 0..2 {
            run("nft flush ruleset");
            run(&format!("nft '{NFT}'"));
            eventually("the rules", async || is_there()).await;
        }
        // And what cannot be mended is written down.
        run("nft 'table bridge strict { chain passing { type filter hook forward priority 0; policy drop; }; }'");
        eventually("the problem", async || path.exists()).await;
        run("nft delete table bridge strict");
        eventually("the end of the problem", async || !path.exists()).await;
        keep.abort();
        let _ = std::fs::remove_dir_all(path.parent().unwrap());
        Ok(())
    });
}
