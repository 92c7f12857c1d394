//! A host whose firewall drops forwarded packets: a namespace with the chains of other programs, in which the test is run again. Beyond
//! the host is a name server.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};

use neonvm_test_support::{Need, Running, need, needs};

use crate::cluster::{Cluster, possible};

/// The two lines that make a host of the kind.
const NFT: &str = "nft add table ip filter; nft 'add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }'";
const DOCKER: &str =
    "for chain in DOCKER DOCKER-USER DOCKER-FORWARD DOCKER-ISOLATION-STAGE-1; do iptables-nft -N $chain; done
    iptables-nft -P FORWARD DROP
    iptables-nft -A FORWARD -j DOCKER-USER
    iptables-nft -A FORWARD -j DOCKER-FORWARD
    iptables-nft -A DOCKER-FORWARD -j DOCKER-ISOLATION-STAGE-1
    iptables-nft -A DOCKER-FORWARD -o docker0 -j DOCKER
    iptables-nft -A DOCKER -i docker0 ! -o docker0 -j DROP
    iptables-nft -A DOCKER-USER -j RETURN";

/// The host: its interface leads to a network with the name server, which is that of the host.
const HOST: &str = "mount -t tmpfs none /run/netns
    ip link set lo up
    ip netns add beyond
    ip link add wan type veth peer name eth0 netns beyond
    ip addr add 192.0.2.254/24 dev wan; ip link set wan up
    ip -n beyond addr add 192.0.2.1/24 dev eth0; ip -n beyond link set eth0 up
    ip route add default via 192.0.2.1
    echo nameserver 192.0.2.1 > /run/netns/resolv.conf
    mount --bind /run/netns/resolv.conf /etc/resolv.conf";
const ANSWER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

fn lab() -> Need {
    possible()?;
    needs::programs(&["unshare", "mount", "iptables-nft"])
}

/// Runs another test of this program, in a host of its own.
fn on_a_host_with(firewall: &str) {
    // Built here, where packages can be loaded.
    neonvm_e2e::programs().unwrap();
    neonvm_e2e::guest().unwrap();
    crate::machine::busybox();
    let program = std::env::current_exe().unwrap();
    let script = format!(
        "mkdir -p /run/netns; {HOST}\n{firewall}\nexec \"$0\" --exact --ignored --nocapture firewall::a_vm_on_such_a_host"
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--propagation", "private", "sh", "-ec", &script]).arg(program);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("1 passed"), "{}", text(&output.stdout));
}

#[test]
fn vms_have_a_network_under_a_policy_that_drops() {
    need!(lab());
    on_a_host_with(NFT);
}

#[test]
fn vms_have_a_network_beside_docker() {
    need!(lab());
    on_a_host_with(DOCKER);
}

/// Not a separate test: what the others start.
#[test]
#[ignore = "not a test: runs in the namespace that other tests make"]
fn a_vm_on_such_a_host() {
    let mut server = Command::new("ip");
    server.args(["netns", "exec", "beyond"]).arg(std::env::current_exe().unwrap());
    server.args(["--exact", "--ignored", "firewall::a_name_server"]);
    let _server = Running(server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let rules = || {
        let output = Command::new("iptables-nft").arg("-S").output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let before = rules();
    let cluster = Cluster::with(&["--nodes", "2"]);
    cluster.idle();
    cluster.run("net", &[]);
    let resolves = || {
        let asked = cluster.inside("net", "busybox nslookup name.example");
        assert!(asked.contains(&ANSWER.to_string()), "{asked}");
    };
    resolves();
    let node = cluster.vm("net")["status"]["node"].clone();
    cluster.good(&["vm", "migrate", "net", "--wait", "--timeout", "170s"]);
    assert_ne!(cluster.vm("net")["status"]["node"], node);
    resolves();
    // A firewall that starts now flushes the rules that were there.
    let comment = || rules().contains("--comment neonvm-");
    assert!(comment());
    assert!(Command::new("iptables-nft").args(["-F", "FORWARD"]).status().unwrap().success());
    crate::cluster::until(comment, rules);
    cluster.down();
    assert!(!rules().contains("neonvm-") && before.contains("-P FORWARD DROP"), "{}", rules());
}

/// Not a separate test: has one address for each name.
#[test]
#[ignore = "not a test: the name server that another test starts"]
fn a_name_server() {
    let socket = UdpSocket::bind("0.0.0.0:53").unwrap();
    let mut buffer = [0; 1024];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        let query = &buffer[..length];
        // Behind the header: the name in labels, up to an empty one, then type and class.
        let Some(end) = query.iter().skip(12).position(|byte| *byte == 0).map(|at| 12 + at + 5) else {
            continue;
        };
        let Some(question) = query.get(12..end) else { continue };
        let has_answer = question[question.len() - 3] == 1;
        let mut reply =
            [&query[..2], &[0x81, 0x80, 0, 1, 0, u8::from(has_answer), 0, 0, 0, 0], question].concat();
        if has_answer {
            reply.extend([0xC0, 0x0C, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
            reply.extend(ANSWER.octets());
        }
        let _ = socket.send_to(&reply, from);
    }
}
