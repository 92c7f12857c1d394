//! The guest program's own servers: a guest with an informant and one with a monitor, under one agent.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use neonvm_guest::monitor::{Options, run};
use neonvm_kit::port::Reserved;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::guest::load;
use crate::web::{Reply, Web};
use crate::world::{World, set};

/// The server of the guest program, with a guest of files whose memory follows the VM.
struct Guest {
    metrics: Web,
    units: Arc<Mutex<u32>>,
    /// Memory in use, in MiB.
    used: Arc<Mutex<u64>>,
    follows: JoinHandle<()>,
    _root: tempfile::TempDir,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.follows.abort();
    }
}

fn memory(root: &Path, total: u64, used: u64) {
    let available = (total << 10).saturating_sub(used);
    let text = format!(
        "MemTotal: {:12} kB\nMemAvailable: {:12} kB\nAnonPages: {:12} kB\nShmem: 0 kB\n",
        total << 20,
        available << 10,
        used << 10
    );
    std::fs::write(root.join("proc/meminfo"), text).unwrap();
}

impl Guest {
    /// Of the VM with this name, at this address; the server ends with the test.
    async fn start(cluster: &Cluster, vm: &str, address: SocketAddr, metrics: u16, informant: bool) -> Self {
        let root = tempfile::tempdir().unwrap();
        for directory in ["proc", "sys/devices/system/cpu"] {
            std::fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        for (file, text) in [
            ("proc/loadavg", "0.00 0.00 0.00 1/100 1000\n"),
            ("sys/devices/system/cpu/online", "0-1\n"),
            ("sys/devices/system/cpu/possible", "0-3\n"),
        ] {
            std::fs::write(root.path().join(file), text).unwrap();
        }
        memory(root.path(), 1, 100);
        let (units, used) = (Arc::new(Mutex::new(1)), Arc::new(Mutex::new(100)));
        let shows = Arc::clone(&units);
        let answer = move |_: &_| Reply::Text(200, load(*shows.lock().unwrap()));
        let metrics = Web::start(SocketAddr::new(address.ip(), metrics), answer).await;
        let metrics_port = metrics.address.port();
        let path = root.path().to_owned();
        let options = Options { address, informant, metrics_port, root: path.clone(), ..Options::default() };
        std::thread::spawn(move || run(&options));
        let (vms, name, uses) = (cluster.vms(), vm.to_owned(), Arc::clone(&used));
        let follows = tokio::spawn(async move {
            loop {
                if let Ok(vm) = vms.get(&name).await {
                    let used = *uses.lock().unwrap();
                    memory(&path, u64::from(vm.spec.guest.memory_slots.r#use), used);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        Self { metrics, units, used, follows, _root: root }
    }

    fn load(&self, units: u32) {
        *self.units.lock().unwrap() = units;
    }

    fn uses(&self, mebibytes: u64) {
        *self.used.lock().unwrap() = mebibytes;
    }
}

/// Both grow and shrink by load and by memory; when the agent is replaced, both go on with the new one.
#[tokio::test]
async fn an_informants_and_a_monitors_guest_scale_side_by_side() {
    let world = World::start(1).await;
    let (metrics, monitor) = world.guests[0].ports();
    // Sockets of this process call from 127.0.0.1: that is the address of the guest that calls the agent.
    let (old_ip, new_ip): (IpAddr, IpAddr) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
    let (callbacks, server) = (Reserved::loopback().unwrap(), Reserved::loopback().unwrap());
    let labels = json!({ "metadata": { "labels": { "age": "old" } } });
    world.cluster.vm("old", &old_ip.to_string(), labels).await;
    world.cluster.vm("new", &new_ip.to_string(), json!({})).await;
    let old = Guest::start(&world.cluster, "old", server.address(), 0, true).await;
    let new = SocketAddr::new(new_ip, monitor);
    let new = Guest::start(&world.cluster, "new", new, metrics, false).await;
    let mut settings = world.settings();
    // The fake monitor of `v0` has the same address as the old guest.
    let informant = json!({
        "serverPort": server.address().port(), "callbackPort": callbacks.address().port(), "selector": "age=old",
        "skipMonitor": true, "retryServerMinWaitSeconds": 1, "retryServerNormalWaitSeconds": 1, "registerRetrySeconds": 1,
    });
    set(&mut settings, "informant", informant);
    let agent = world.agent_with(&settings).await;
    world.shows("old", "informant v2.0").await;
    world.shows("new", "monitor v2.0").await;
    for units in [4, 1] {
        old.load(units);
        new.load(units + 1);
        world.settles("old", units).await;
        world.settles("new", units + 1).await;
    }
    new.load(1);
    world.settles("new", 1).await;

    // 785 MiB is the threshold of one unit: both guests request more, and do not consent to less.
    old.uses(900);
    new.uses(900);
    world.settles("old", 2).await;
    world.settles("new", 2).await;
    world.shows("old", "exceed threshold").await;
    world.shows("new", "exceed threshold").await;
    assert!(old.metrics.count() > 0, "metrics are read at the port that the informant names");

    // Killed, the first agent does not unregister: the informant makes the second the current one.
    drop(agent);
    let _agent = world.agent_with(&settings).await;
    world.shows("old", "informant v2.0").await;
    old.uses(100);
    new.uses(100);
    world.settles("old", 1).await;
    world.settles("new", 1).await;
}
