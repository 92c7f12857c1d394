//! H6, M4: strangers at the port of a VM's runner; two QEMUs on one host.

use std::path::PathBuf;
use std::sync::Arc;

use neonvm_e2e::client::Resource;
use neonvm_test_support::{Need, eventually_blocking, need, needs};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::cluster::Cluster;
use crate::home::Home;
use crate::sockets::{ListenAddress, listeners};

/// Connections of strangers, each of which asks again and again.
const STRANGERS: usize = 80;
/// Port of runners.
const PORT: u16 = 25183;

pub(crate) fn kernel() -> Need<PathBuf> {
    needs::network_namespaces()?;
    needs::qemu()?;
    needs::kernel()
}

/// Asks for readiness for as long as the connection lasts, and then connects again.
async fn poll(address: std::net::SocketAddr) {
    let config = Arc::new(neonvm_kit::tls::unchecked().unwrap());
    loop {
        let Ok(stream) = TcpStream::connect(address).await else { continue };
        let connector = TlsConnector::from(Arc::clone(&config));
        let Ok(mut stream) = connector.connect(address.ip().into(), stream).await else { continue };
        let mut answer = [0; 4096];
        while stream.write_all(b"GET /ready HTTP/1.1\r\nhost: h\r\n\r\n").await.is_ok()
            && matches!(stream.read(&mut answer).await, Ok(1..))
        {}
    }
}

/// Builds the image `idle:1`, whose guest does nothing.
pub(crate) fn build_idle(cluster: &Cluster) {
    neonvm_e2e::guest().unwrap();
    let root = cluster.home().path().join("root");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    let root = root.display();
    cluster.home().good(&format!("vm build --from {root} --owner root -t idle:1 -- /bin/none"));
}

/// Runs VMs of these names with that image.
pub(crate) fn run_idle(cluster: &Cluster, names: &[&str]) {
    build_idle(cluster);
    for name in names {
        let made = cluster.neonctl(&format!(
            "vm create {name} --image idle:1 --cpu 1..2 --memory 256Mi..512Mi --no-autoscale"
        ));
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    for name in names {
        eventually_blocking(
            || format!("VM {name} runs"),
            || {
                let vm = cluster.client().get(Resource::VM, name).map_err(|error| error.to_string())?;
                let status = &vm["status"];
                let runs = status["phase"] == "Running" && status["cpus"] == 1;
                if runs { Ok(()) } else { Err(status.to_string()) }
            },
        );
    }
}

/// The real user of a process.
fn user(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    line.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn strangers_do_not_lock_a_runner_and_qemus_are_strangers_to_each_other() {
    let kernel = need!(kernel());
    let cluster = Cluster::in_home(Home::with_kernel(&kernel), 1);
    run_idle(&cluster, &["a", "b"]);
    let processes = cluster.processes();
    let users: Vec<String> =
        processes.iter().filter(|one| one.role.starts_with("qemu-system")).map(|one| user(one.pid)).collect();
    assert!(users.len() == 2 && users[0] != users[1] && !users.contains(&"0".to_owned()), "{users:?}");

    let runners: Vec<_> = processes.into_iter().filter(|one| one.role == "runner").collect();
    let addresses: Vec<_> = listeners(&runners)
        .into_iter()
        .filter_map(|listener| match listener.place {
            ListenAddress::Tcp(address) if address.port() == PORT => Some(address),
            _ => None,
        })
        .collect();
    assert_eq!(addresses.len(), 2, "{addresses:?}");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for address in &addresses {
        for _ in 0..STRANGERS {
            runtime.spawn(poll(*address));
        }
    }
    let scaled = cluster.neonctl("vm scale a --cpu 2 --wait");
    runtime.shutdown_background();
    assert!(scaled.status.success(), "{}", String::from_utf8_lossy(&scaled.stderr));
    for runner in runners {
        println!("runner: at most {} KiB", runner.peak_memory());
        assert!(runner.peak_memory() < 96 << 10);
    }
}
