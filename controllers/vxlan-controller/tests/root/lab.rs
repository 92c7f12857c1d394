//! Nodes are namespaces on a common bridge, in a namespace as well; pods are namespaces joined to a node's overlay.

use neonvm_test_support::{Need, eventually, needs};
use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use neonvm_api::VirtualMachine;
use neonvm_api::overlay::hardware_address;
use neonvm_test_cluster::ApiServer;
use neonvm_vxlan_controller::{Config, run};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub(crate) fn network() -> Need {
    needs::network_namespaces()?;
    needs::program("bridge").map(drop)
}

/// Runs a program; what it prints.
pub(crate) fn sh(line: &str) -> Result<String, String> {
    let mut words = line.split_whitespace();
    let done = Command::new(words.next().unwrap()).args(words).output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() {
        Ok(text(&done.stdout))
    } else {
        Err(format!("{line}: {}", text(&done.stderr)))
    }
}

/// Waits until something is as wanted.
pub(crate) async fn until(what: &str, mut is: impl FnMut() -> bool) {
    eventually(what, async || is()).await;
}

/// A controller that runs; killed when dropped.
pub(crate) struct Controller(JoinHandle<()>);

impl Drop for Controller {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) struct Lab {
    pub(crate) client: Client,
    prefix: String,
    echoes: Mutex<BTreeMap<String, Echo>>,
    /// Of machines.
    hardware: Mutex<Vec<String>>,
    pub(crate) server: ApiServer,
}

/// Where pods answer.
const PORT: u16 = 7;

/// Sends back what comes, until it is dropped.
struct Echo(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

fn echo_on(socket: UdpSocket) -> Echo {
    let ends = Arc::new(AtomicBool::new(false));
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let thread = std::thread::spawn({
        let ends = Arc::clone(&ends);
        move || {
            let mut buffer = [0; 4096];
            while !ends.load(Ordering::Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&buffer[..length], from);
                }
            }
        }
    });
    Echo(ends, Some(thread))
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = self.1.take().map(std::thread::JoinHandle::join);
    }
}

static LABS: AtomicUsize = AtomicUsize::new(0);

impl Drop for Lab {
    fn drop(&mut self) {
        self.echoes.lock().unwrap().clear();
        for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&self.prefix) {
                let _ = sh(&format!("ip netns del {name}"));
            }
        }
    }
}

impl Lab {
    pub(crate) async fn start(nodes: &[u8]) -> Self {
        let server = ApiServer::with_our_kinds().await;
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("nvx{}-{number}-", std::process::id());
        let lab = Self {
            client: server.client.clone(),
            prefix,
            echoes: Mutex::default(),
            hardware: Mutex::default(),
            server,
        };
        lab.add_namespace("underlay");
        lab.inside("underlay", "ip link add name wire type bridge forward_delay 0");
        lab.inside("underlay", "ip link set wire up");
        for node in nodes {
            lab.add_node(*node).await;
        }
        lab
    }

    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn add_namespace(&self, name: &str) {
        sh(&format!("ip netns add {}", self.name(name))).unwrap();
        self.inside(name, "ip link set lo up");
        // So that no namespace sends neighbour discovery.
        self.enter(name, || {
            for key in ["all", "default"] {
                let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{key}/disable_ipv6"), "1");
            }
        });
    }

    /// Runs a program in a namespace.
    pub(crate) fn inside(&self, name: &str, line: &str) -> String {
        self.try_inside(name, line).unwrap()
    }

    pub(crate) fn try_inside(&self, name: &str, line: &str) -> Result<String, String> {
        sh(&format!("ip netns exec {} {line}", self.name(name)))
    }

    /// A namespace with an address on the underlay, and the object.
    pub(crate) async fn add_node(&self, number: u8) {
        let name = format!("n{number}");
        self.add_namespace(&name);
        let (underlay, own) = (self.name("underlay"), self.name(&name));
        sh(&format!("ip link add name u{number} netns {underlay} type veth peer name up0 netns {own}"))
            .unwrap();
        self.inside("underlay", &format!("ip link set u{number} master wire up"));
        self.inside(&name, &format!("ip addr add 10.90.0.{number}/24 dev up0"));
        self.inside(&name, "ip link set up0 up");
        let api: Api<Node> = Api::all(self.client.clone());
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        api.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        let address = json!([{"type": "InternalIP", "address": format!("10.90.0.{number}")}]);
        let status = json!({"status": {"addresses": address}});
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    pub(crate) async fn remove_node(&self, number: u8) {
        let api: Api<Node> = Api::all(self.client.clone());
        api.delete(&format!("n{number}"), &DeleteParams::default()).await.unwrap();
    }

    pub(crate) fn config(&self, number: u8) -> Config {
        let path = PathBuf::from("/run/netns").join(self.name(&format!("n{number}")));
        let kubeconfig = Some(self.server.kubeconfig());
        Config { kubeconfig, namespace: Some(path), ..Config::new(format!("n{number}")) }
    }

    pub(crate) fn controller(&self, number: u8) -> Controller {
        Self::run(self.config(number))
    }

    pub(crate) fn run(config: Config) -> Controller {
        Controller(tokio::spawn(async move { run(config, std::future::pending()).await.unwrap() }))
    }

    pub(crate) async fn add_pod(&self, pod: &str, node: u8, address: &str, hardware: Option<&str>) {
        self.until_there(node).await;
        self.add_port(pod, node, address, hardware);
        let address: IpAddr = address.parse().unwrap();
        let socket = self.enter(pod, move || UdpSocket::bind((address, PORT)).unwrap());
        let serving = echo_on(socket);
        self.echoes.lock().unwrap().insert(pod.to_owned(), serving);
    }

    /// The namespace of a pod, joined to the bridge of a node.
    pub(crate) fn add_port(&self, pod: &str, node: u8, address: &str, hardware: Option<&str>) {
        let name = format!("n{node}");
        self.add_namespace(pod);
        let (own, inner) = (self.name(&name), self.name(pod));
        sh(&format!(
            "ip link add v-{pod} netns {own} mtu 1450 type veth peer name net1 mtu 1450 netns {inner}"
        ))
        .unwrap();
        if let Some(hardware) = hardware {
            self.inside(pod, &format!("ip link set net1 address {hardware}"));
        }
        self.inside(&name, &format!("ip link set v-{pod} master neon-br0 up"));
        self.inside(pod, &format!("ip addr add {address}/16 dev net1"));
        self.inside(pod, "ip link set net1 up");
    }

    /// A pod of a node, `p1` of `n1`, that is not on the overlay. Its node hides it behind its own address, as many plugins do.
    pub(crate) fn add_plain_pod(&self, node: u8) {
        let (pod, name) = (format!("p{node}"), format!("n{node}"));
        self.add_namespace(&pod);
        let (own, inner) = (self.name(&name), self.name(&pod));
        sh(&format!("ip link add cni0 netns {own} type veth peer name eth0 netns {inner}")).unwrap();
        self.inside(&name, &format!("ip addr add 10.152.{node}.1/24 dev cni0"));
        self.inside(&name, "ip link set cni0 up");
        self.inside(&pod, &format!("ip addr add 10.152.{node}.12/24 dev eth0"));
        self.inside(&pod, "ip link set eth0 up");
        self.inside(&pod, &format!("ip route add default via 10.152.{node}.1"));
        self.enter(&name, || {
            for (key, value) in
                [("ip_forward", "1"), ("conf/all/rp_filter", "0"), ("conf/cni0/rp_filter", "0")]
            {
                std::fs::write(format!("/proc/sys/net/ipv4/{key}"), value).unwrap();
            }
        });
        for line in [
            "add table ip plugin",
            "add chain ip plugin out { type nat hook postrouting priority srcnat ; }",
            "add rule ip plugin out oifname up0 masquerade",
        ] {
            self.inside(&name, &format!("nft {line}"));
        }
    }

    /// Runs something on a thread in a namespace.
    pub(crate) fn enter<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let file = std::fs::File::open(format!("/run/netns/{}", self.name(name))).unwrap();
        let inside = move || {
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(file.as_fd(), kind).unwrap();
            work()
        };
        std::thread::spawn(inside).join().unwrap()
    }

    pub(crate) fn remove_pod(&self, pod: &str) {
        // The socket of its echo holds the namespace.
        drop(self.echoes.lock().unwrap().remove(pod));
        sh(&format!("ip netns del {}", self.name(pod))).unwrap();
    }

    /// Bridge and tunnel are up.
    pub(crate) async fn until_there(&self, node: u8) {
        let name = format!("n{node}");
        until("there", || {
            let ports = self.try_inside(&name, "ip -o link show master neon-br0").unwrap_or_default();
            ports.contains("neon-vxlan0") && ports.contains(",UP")
        })
        .await;
    }

    /// Entries of a node's tunnel for VMs: `<hardware address> <node>`, `*` for all.
    pub(crate) fn entries(&self, node: u8) -> Vec<String> {
        let text =
            self.try_inside(&format!("n{node}"), "bridge fdb show dev neon-vxlan0").unwrap_or_default();
        let entry = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = words.iter().position(|word| *word == "dst")?;
            let node = words.get(at + 1)?.rsplit('.').next()?;
            if !words[0].starts_with("00:") && !self.hardware.lock().unwrap().contains(&words[0].to_owned()) {
                return None;
            }
            let hardware = if words[0] == "00:00:00:00:00:00" { "*" } else { words[0] };
            Some(format!("{hardware} n{node}"))
        };
        let mut all: Vec<String> = text.lines().filter_map(entry).collect();
        all.sort();
        all
    }

    /// Makes a VM and its pod.
    pub(crate) async fn add_guest(&self, name: &str, node: u8, address: &str) -> String {
        let hardware = self.add_machine(name, node, address).await;
        self.add_pod(name, node, address, Some(&hardware)).await;
        hardware
    }

    pub(crate) async fn until_entries(&self, node: u8, wanted: &[String]) {
        let mut wanted = wanted.to_vec();
        wanted.sort();
        eventually(&format!("{wanted:?} at n{node}"), async || {
            let have = self.entries(node);
            if have == wanted { Ok(()) } else { Err(format!("{have:?}")) }
        })
        .await;
    }

    /// A VM on a node, as a controller would have written it. Its hardware address.
    pub(crate) async fn add_machine(&self, name: &str, node: u8, address: &str) -> String {
        let vm = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": name},
            "spec": {"extraNetwork": {"enable": true}, "guest": {"cpus": {"min": 1, "max": 1, "use": 1},
                "memorySlots": {"min": 1, "max": 1, "use": 1}, "rootDisk": {"image": "img:1"}}}});
        let vm = serde_json::from_value(vm).unwrap();
        let vm: VirtualMachine = self.machines().create(&PostParams::default(), &vm).await.unwrap();
        let status = json!({"phase": "Running", "node": format!("n{node}"), "extraNetIP": address});
        self.set_status(name, status).await;
        let bytes = hardware_address(&vm.metadata.uid.unwrap());
        let text = bytes.map(|byte| format!("{byte:02x}")).join(":");
        self.hardware.lock().unwrap().push(text.clone());
        text
    }

    pub(crate) async fn set_status(&self, name: &str, status: Value) {
        let status = json!({ "status": status });
        self.machines().patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    pub(crate) fn machines(&self) -> Api<VirtualMachine> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Waits until packets with so many bytes and their answers arrive.
    pub(crate) async fn until_reached(&self, from: &str, to: &str, size: usize) {
        until(&format!("reached: {to} from {from}"), || self.reaches(from, to, size)).await;
    }

    /// Whether a packet with so many bytes and its answer arrive.
    fn reaches(&self, from: &str, to: &str, size: usize) -> bool {
        let to: IpAddr = to.parse().unwrap();
        self.enter(from, move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            let mut buffer = vec![7; size + 1];
            let sent = socket.send_to(&buffer[..size], (to, PORT)).is_ok();
            sent && socket.recv(&mut buffer).is_ok_and(|length| length == size)
        })
    }
}
