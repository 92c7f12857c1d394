//! Findings 1 and 9b: guests, and what runs in their pods, send packets of the tunnel, forged ARP and tagged frames; a bystander's
//! packets to the VM whose address they take must all be answered, by that VM.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use neonvm_api::overlay::hardware_address;
use neonvm_e2e::client::Resource;
use neonvm_test_support::{Need, eventually_blocking, need, needs};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::home::Home;

/// Rounds of an attack.
const ROUNDS: u64 = 100;

fn kernel() -> Need<PathBuf> {
    needs::network_namespaces()?;
    needs::qemu()?;
    needs::programs(&["cc", "bridge", "nft", "nsenter"])?;
    needs::kernel()
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Builds an image whose workload is a program of `guest.c` with these words.
fn image(cluster: &Cluster, name: &str, words: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adversary/overlay/guest.c");
    let root = cluster.home().path().join("root");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    let program = root.join("bin/guest").display().to_string();
    run("cc", &["-O1", "-static", "-s", "-o", &program, &source.display().to_string()]);
    let root = root.display();
    cluster.home().good(&format!("vm build --from {root} --owner root -t {name} -- /bin/guest {words}"));
}

/// A VM on the overlay and on a node, that runs; its hardware address and its address there.
fn vm(cluster: &Cluster, name: &str, node: &str, image: &str, ports: &str) -> ([u8; 6], Ipv4Addr) {
    cluster
        .client()
        .apply(&format!(
            "apiVersion: vm.neon.tech/v1\nkind: VirtualMachine\nmetadata: {{ name: {name} }}\nspec:\n\
             \x20 nodeSelector: {{ kubernetes.io/hostname: {node} }}\n  extraNetwork: {{ enable: true }}\n\
             \x20 guest:\n    cpus: {{ min: 0.5, use: 0.5, max: 1 }}\n    memorySlotSize: 256Mi\n\
             \x20   memorySlots: {{ min: 1, max: 1, use: 1 }}\n    rootDisk: {{ image: {image} }}\n    ports: [{ports}]\n"
        ))
        .unwrap();
    let runs = || {
        let vm = cluster.client().get(Resource::VM, name).map_err(|error| error.to_string())?;
        let address = vm["status"]["extraNetIP"].as_str().and_then(|text| text.parse().ok());
        let running = vm["status"]["phase"] == "Running";
        let uid = vm["metadata"]["uid"].as_str().unwrap_or_default();
        address.filter(|_| running).map(|ip| (hardware_address(uid), ip)).ok_or(vm["status"].to_string())
    };
    eventually_blocking(|| format!("VM {name} runs"), runs)
}

/// The last report of an attacker: rounds, and answers of the attacked guest program.
fn report(cluster: &Cluster, name: &str) -> Result<(u64, u64), String> {
    let logs = cluster.neonctl(&format!("vm logs {name} --source guest --tail 20"));
    let text = String::from_utf8_lossy(&[logs.stdout, logs.stderr].concat()).into_owned();
    let counts = text.rsplit_once("attack: ").and_then(|(_, rest)| rest.split_once(" answers"));
    let (rounds, answers) = counts.and_then(|(counts, _)| counts.split_once(" rounds, ")).ok_or(&text)?;
    Ok((rounds.parse().map_err(|_| &text)?, answers.parse().map_err(|_| &text)?))
}

/// The process id of a VM's runner, whose network namespace is the pod's.
fn runner(cluster: &Cluster, name: &str) -> u32 {
    let vm = cluster.client().get(Resource::VM, name).unwrap();
    let pod = vm["status"]["podName"].as_str().unwrap().to_owned();
    let is_of = |pid: u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let text = String::from_utf8_lossy(&[line, environment].concat()).into_owned();
        text.contains(&pod)
    };
    let all = cluster.processes().into_iter().filter(|one| one.role == "runner");
    all.map(|one| one.pid).find(|pid| is_of(*pid)).unwrap_or_else(|| panic!("no runner of {pod}"))
}

/// Datagrams to the VM and back, one after the other; the next one only when the last is answered.
struct Bystander {
    ends: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Bystander {
    fn start(to: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect((to, 7)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        // The VM runs before its workload does.
        let ready = || {
            socket.send(b"ready").unwrap();
            socket.recv(&mut [0; 8]).is_ok()
        };
        eventually_blocking(|| "a VM that answers".to_owned(), ready);
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let (ends, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = std::thread::spawn({
            let (ends, answered) = (Arc::clone(&ends), Arc::clone(&answered));
            move || {
                while !ends.load(Ordering::Relaxed) {
                    let number = answered.load(Ordering::Relaxed).to_be_bytes();
                    socket.send(&number).unwrap();
                    let mut buffer = [0; 64];
                    loop {
                        let length = socket.recv(&mut buffer).expect("each packet is answered");
                        // Late answers to the first ones.
                        if &buffer[..length] != b"ready" {
                            assert_eq!(buffer[..length], number);
                            break;
                        }
                    }
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { ends, answered, thread }
    }

    fn meanwhile(&self, more: u64) {
        let before = self.answered.load(Ordering::Relaxed);
        let enough = || self.answered.load(Ordering::Relaxed) >= before + more || self.thread.is_finished();
        eventually_blocking(|| "answers".to_owned(), enough);
    }

    fn stop(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("no packet is missing");
        println!("{} packets, none missing", self.answered.load(Ordering::Relaxed));
    }
}

/// Sends packets of the tunnel with a forged announcement from a network namespace, with these senders.
fn inject(pid: u32, senders: &[Ipv4Addr], nodes: &[Ipv4Addr], hardware: [u8; 6], address: Ipv4Addr) {
    let own = [&hardware[..], &address.octets()].concat();
    let frame = [&[0xff; 6][..], &hardware, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &own, &own].concat();
    let length = u16::try_from(16 + frame.len()).unwrap().to_be_bytes();
    let udp = [&[0x12, 0xb5, 0x12, 0xb5], &length[..], &[0, 0, 8, 0, 0, 0, 0, 0, 100, 0], &frame].concat();
    let mut packets = Vec::new();
    for (sender, node) in senders.iter().flat_map(|sender| nodes.iter().map(move |node| (sender, node))) {
        // The kernel completes length, number and checksum.
        let ip = [&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0][..], &sender.octets(), &node.octets()].concat();
        packets.push((*node, [&ip[..], &udp].concat()));
    }
    let namespace = std::fs::File::open(format!("/proc/{pid}/ns/net")).unwrap();
    let work = move || {
        let kind = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), kind).unwrap();
        let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).unwrap();
        for _ in 0..ROUNDS {
            for (node, packet) in &packets {
                let _ = sendto(&raw, packet, SendFlags::empty(), &SocketAddrV4::new(*node, 0));
            }
        }
    };
    std::thread::spawn(work).join().unwrap();
}

/// Counts what a guest sends to the tunnels and what leaves its pod of that.
fn count(pid: u32) {
    let script = "table inet probe {\n chain sent { type filter hook prerouting priority -350; policy accept;\n \
                  iifname \"tap-def\" udp dport 4789 counter\n }\n \
                  chain left { type filter hook postrouting priority 350; policy accept;\n \
                  oifname != \"tap-def\" udp dport 4789 counter\n }\n}\n";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), script).unwrap();
    run("nsenter", &["-t", &pid.to_string(), "-n", "nft", "-f", &file.path().display().to_string()]);
}

fn counted(pid: u32) -> (u64, u64) {
    let text = run("nsenter", &["-t", &pid.to_string(), "-n", "nft", "list", "table", "inet", "probe"]);
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut counts =
        words.windows(2).filter(|pair| pair[0] == "packets").map(|pair| pair[1].parse().unwrap());
    (counts.next().unwrap(), counts.next().unwrap())
}

/// Where the tunnel of a node sends the frames for a hardware address.
fn leads(node: &str, address: Ipv4Addr, hardware: &str) -> Vec<String> {
    let names = std::fs::read_dir("/run/netns").unwrap().flatten();
    let mine = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).find(|name| {
        let has = || {
            let shown =
                Command::new("ip").args(["-n", name, "-o", "-4", "addr", "show", "up0"]).output().unwrap();
            String::from_utf8_lossy(&shown.stdout).contains(&format!(" {address}/"))
        };
        name.ends_with(&format!("-n-{node}")) && has()
    });
    let mine = mine.unwrap_or_else(|| panic!("{node} has no namespace"));
    let table = run("ip", &["netns", "exec", &mine, "bridge", "fdb", "show", "dev", "neon-vxlan0"]);
    let lines = table.lines().filter(|line| line.starts_with(hardware) && line.contains(" dst "));
    lines.map(|line| line.split_once(" dst ").unwrap().1.to_owned()).collect()
}

fn address_of(node: &Value) -> Ipv4Addr {
    node["status"]["addresses"][0]["address"].as_str().unwrap().parse().unwrap()
}

#[test]
fn no_guest_takes_over_what_is_for_another() {
    let kernel = need!(kernel());
    neonvm_e2e::guest().unwrap();
    let cluster = Cluster::in_home(Home::with_kernel(&kernel), 2);
    let nodes = ["n1", "n2"].map(|name| address_of(&cluster.client().get(Resource::NODE, name).unwrap()));
    image(&cluster, "echo:1", "echo");
    // The bystander comes by way of the first node.
    let (hardware, address) = vm(&cluster, "victim", "n2", "echo:1", "");
    let text = hardware.map(|byte| format!("{byte:02x}")).join(":");
    let bystander = Bystander::start(address);
    image(&cluster, "attack:1", &format!("attack {text} {address} {} {}", nodes[0], nodes[1]));
    let port = "{ name: tunnel, port: 4789, protocol: UDP }";
    for (name, node, ports) in [("other-node", "n1", port), ("same-node", "n2", ""), ("port", "n2", port)] {
        let (_, own) = vm(&cluster, name, node, "attack:1", ports);
        let pid = runner(&cluster, name);
        count(pid);
        let done = || {
            report(&cluster, name)
                .and_then(|done| if done.0 >= ROUNDS { Ok(done) } else { Err(format!("{done:?}")) })
        };
        let (rounds, answers) = eventually_blocking(|| format!("rounds of {name}"), done);
        let (sent, left) = counted(pid);
        println!(
            "{name}: {rounds} rounds, {sent} packets to tunnels, {left} left the pod, {answers} answers"
        );
        assert!(sent > 0 && left == 0 && answers == 0);
        bystander.meanwhile(20);
        // What is in the pod without being the guest is bounded by the nodes.
        let vm = cluster.client().get(Resource::VM, name).unwrap();
        let pod = vm["status"]["podIP"].as_str().unwrap().parse().unwrap();
        inject(pid, &[pod, nodes[0], nodes[1], own], &nodes, hardware, address);
        inject(pid, &[pod, nodes[0], nodes[1], own], &nodes, [2, 0, 0, 0, 0, 66], address);
        assert!(counted(pid).1 > 0, "packets have left the pod");
        bystander.meanwhile(20);
        let known = leads("n1", nodes[0], &text);
        assert!(known.len() == 1 && known[0].starts_with(&format!("{} ", nodes[1])), "{known:?}");
        assert!(known[0].contains("extern_learn"), "{known:?}");
        cluster.client().delete(Resource::VM, name, None).unwrap();
    }
    bystander.stop();
}
