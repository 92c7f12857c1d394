//! `neond local`: a complete cluster on this host. A supervisor; each service is a separate process.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use neonvm_apiserver::disk::{OVERLAY, release_addresses};
use neonvm_kit::port::Reserved;
use neonvm_kit::private;
use neonvm_kit::reserve::Reserve;
use neonvm_kubelet::lifecycle::Patience;
use tokio::task::JoinSet;

use self::metrics::{Metrics, OF_VMS, OWN};
use self::supervisor::Service;
use crate::apiserver;

mod metrics;
mod supervisor;

/// Flags.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Flags of the API server.
    #[command(flatten)]
    api: apiserver::Args,
    /// Number of nodes; 0: only an API server. More than one requires root
    #[arg(long, default_value_t = 1)]
    nodes: u8,
    /// CPUs of each node, in thousandths [default: those of this host]
    #[arg(long)]
    node_cpu_milli: Option<u64>,
    /// Memory of each node, in bytes [default: that of this host, without a reserve]
    #[arg(long)]
    node_memory: Option<u64>,
    /// Accelerator of VMs: auto, kvm or tcg
    #[arg(long, default_value = "auto", value_parser = ["auto", "kvm", "tcg"])]
    accel: String,
    /// Directory of kernels
    #[arg(long)]
    kernels: Option<PathBuf>,
    /// Guest program for VMs whose disk has an older one
    #[arg(long)]
    guest: Option<PathBuf>,
    /// Local image store
    #[arg(long)]
    image_store: Option<PathBuf>,
    /// Cache of layers from registries
    #[arg(long)]
    image_cache: Option<PathBuf>,
    /// Use loopback addresses and user-mode networking, as without root
    #[arg(long)]
    user_network: bool,
    /// Configuration file of the agents, JSON
    #[arg(long)]
    agent_config: Option<PathBuf>,
    /// Serve the metrics of all services on 127.0.0.1, without authentication; metrics.json in the directory of the cluster lists the
    /// addresses for Prometheus
    #[arg(long)]
    metrics: bool,
    /// Allow registries without TLS
    #[arg(long)]
    insecure_registries: bool,
    /// Certificate authority (PEM) of registries to trust in addition to those of the system
    #[arg(long, value_name = "FILE")]
    registry_ca_file: Option<PathBuf>,
    /// Directory of files that VMs may name as images, file://PATH; may be repeated
    #[arg(long, value_name = "DIR")]
    image_files: Vec<PathBuf>,
    /// Stop the VMs of this cluster, remove the resources of its nodes on this host, and exit
    #[arg(long)]
    clean_up: bool,
    /// With --clean-up: seconds after which VMs that still run are killed
    #[arg(long, value_name = "SECONDS", default_value_t = 30, requires = "clean_up")]
    stop_timeout: u64,
    /// With --clean-up: release the addresses of the cluster, which is not started again
    #[arg(long, requires = "clean_up")]
    forget: bool,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    crate::service::close_files();
    if args.clean_up {
        clean_up(&args.api.data_dir, Duration::from_secs(args.stop_timeout))?;
        if args.forget {
            neonvm_kubelet::network_number::release(&crate::kubelet::identity(&args.api.data_dir))?;
        }
        return Ok(());
    }
    let rooted = rustix::process::geteuid().is_root() && !args.user_network;
    anyhow::ensure!(
        args.nodes <= 1 || rooted,
        "--nodes {}: more than one node needs network namespaces, that is, root",
        args.nodes
    );
    private::directory(&args.api.data_dir)
        .with_context(|| format!("cannot make {}", args.api.data_dir.display()))?;
    private::secure(&args.api.data_dir, &private::LEFT)?;
    // An API server that is started again must be where its clients look for it.
    let reserved = Reserved::new(args.api.listen);
    let listen = match &reserved {
        Ok(reserved) => reserved.address(),
        // The server of a supervisor that was killed may still be ending; and ours reports its own errors.
        Err(_) if args.api.listen.port() != 0 => args.api.listen,
        Err(error) => anyhow::bail!("cannot listen on {}: {error}", args.api.listen),
    };
    let network = if rooted && args.nodes > 0 { Some(number(&args.api.data_dir)?) } else { None };
    if args.nodes > 0 {
        // After a crash what ran on them runs on.
        neonvm_kubelet::lifecycle::discard_surplus(&args.api.data_dir, args.nodes, DISCARDED)
            .context("cannot remove nodes that the cluster no longer has")?;
    }
    // Their ports are reserved until the end.
    let mut metrics = Metrics::new(args.metrics);
    let services = services(args, listen, (network, rooted), &mut metrics)?;
    metrics.publish(&args.api.data_dir)?;
    crate::service::run(async {
        let stop = neonvm_kit::termination::requested()?;
        let _firewall = match network {
            Some(_) => Some(keep_firewall(&args.api.data_dir).await),
            None => None,
        };
        let _nodes = keep_nodes(&args.api.data_dir, args.nodes);
        let config = supervisor::Config::new(args.api.data_dir.clone(), services);
        Ok(supervisor::run(config, stop).await?)
    })
}

/// The number of the cluster's network: that of the last start if it is free. With another one VMs get other addresses on the overlay:
/// those of the last start may be another cluster's now.
fn number(directory: &Path) -> anyhow::Result<u8> {
    let text = std::fs::read_to_string(directory.join(OVERLAY)).unwrap_or_default();
    let config: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let range = config.pointer("/ipRanges/0/range").and_then(serde_json::Value::as_str);
    let last = range.and_then(neonvm_kubelet::network_number::of_overlay);
    let number = neonvm_kubelet::network_number::claim(&crate::kubelet::identity(directory), last)?;
    if last.is_some_and(|last| last != number) {
        tracing::warn!(?last, number, "the network of the last start is in use; VMs get other addresses");
        release_addresses(directory)?;
    }
    Ok(number)
}

/// Accepts the packets of this cluster in chains of other programs, from before the first node is ready until the task is dropped.
async fn keep_firewall(directory: &Path) -> JoinSet<()> {
    let file = directory.join(FIREWALL);
    let watch = neonvm_kubelet::firewall::Watch::begin(&crate::kubelet::identity(directory), file).await;
    let mut task = JoinSet::new();
    task.spawn(watch.keep());
    task
}

/// Looks after the nodes until the task is dropped.
fn keep_nodes(directory: &Path, count: u8) -> JoinSet<()> {
    let kubeconfig = directory.join("kubeconfig");
    let mut task = JoinSet::new();
    if count > 0 {
        task.spawn(async move {
            let connected = async {
                crate::service::wait_for(Some(&kubeconfig)).await?;
                anyhow::Ok(neonvm_kit::client::connect(Some(&kubeconfig)).await?)
            };
            match connected.await {
                Ok(client) => neonvm_kubelet::lifecycle::keep(client, count, Patience::default()).await,
                Err(error) => tracing::error!(%error, "the nodes are not looked after"),
            }
        });
    }
    task
}

/// Lines of standard output are for people: what is done, and what was not as it should be.
fn clean_up(directory: &Path, longest: Duration) -> anyhow::Result<()> {
    let running = neonvm_kubelet::running(directory);
    if let Some(most) = running.iter().map(|pod| pod.grace.min(longest)).max() {
        let (count, plural) = (running.len(), if running.len() == 1 { "" } else { "s" });
        print_line(&format!("stopping {count} machine{plural} (up to {} s)", most.as_secs()));
    }
    for pod in neonvm_kubelet::clean_up(&crate::kubelet::identity(directory), directory, longest)? {
        let waited = pod.grace.min(longest).as_secs();
        print_line(&format!("pod {} did not end within {waited} s and was killed", pod.name));
    }
    Ok(())
}

fn print_line(line: &str) {
    // The process that started this may have gone; the clean-up continues.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// File with what could not be done about the host's firewall; `local up` prints it.
const FIREWALL: &str = "firewall.json";

/// How long runners on nodes that the cluster no longer has may take to end.
const DISCARDED: Duration = Duration::from_secs(10);

/// Flags of a child, from those that are set.
struct Flags(Vec<String>);

/// Name of the service that the others need until they have ended: they release their leases in it.
const API_SERVER: &str = "apiserver";
/// Where the embedded API server takes addresses of Services from.
const SERVICES: &str = "10.96.0.0/16";
/// Loopback addresses of pods, which are scraped: 127.2.0.0 to 127.63.255.255 of those that `workload` simulates, up to
/// 127.191.255.255 of those of nodes without namespaces. The API server's 127.0.0.1 is refused here, too.
const PODS: [&str; 7] = [
    "127.2.0.0/15",
    "127.4.0.0/14",
    "127.8.0.0/13",
    "127.16.0.0/12",
    "127.32.0.0/11",
    "127.64.0.0/10",
    "127.128.0.0/10",
];

impl Flags {
    fn set(mut self, flag: &str, value: &dyn std::fmt::Display) -> Self {
        self.0.extend([flag.to_owned(), value.to_string()]);
        self
    }

    fn maybe(self, flag: &str, value: Option<impl std::fmt::Display>) -> Self {
        match value {
            Some(value) => self.set(flag, &value),
            None => self,
        }
    }

    fn path(self, flag: &str, value: Option<&PathBuf>) -> Self {
        self.maybe(flag, value.map(|path| path.display()))
    }

    fn switch(mut self, flag: &str, on: bool) -> Self {
        if on {
            self.0.push(flag.to_owned());
        }
        self
    }
}

fn services(
    args: &Args,
    listen: SocketAddr,
    (network, rooted): (Option<u8>, bool),
    metrics: &mut Metrics,
) -> anyhow::Result<Vec<Service>> {
    let program = std::env::current_exe().context("cannot find this program")?.display().to_string();
    let directory = &args.api.data_dir;
    let logs = directory.join("log");
    private::directory(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
    let start = |service: &str| Flags(vec![program.clone(), service.to_owned()]);
    let kubeconfig = directory.join("kubeconfig");
    let mut all = vec![(
        API_SERVER.to_owned(),
        args.api.tls_names.iter().fold(
            start(API_SERVER)
                .set("--name", &args.api.name)
                .set("--data-dir", &directory.display())
                .set("--listen", &listen)
                .switch("--without-hpa", true)
                .switch("--chaos", args.api.chaos),
            |flags, name| flags.set("--tls-name", &name),
        ),
    )];
    if args.nodes > 0 {
        let with = |service: &str| start(service).set("--kubeconfig", &kubeconfig.display());
        let addresses = network.map(|number| addresses(directory, number)).transpose()?;
        // The API server itself admits the project's kinds; only the vm-controller can migrate a VM instead of
        // evicting it.
        let controller = with("vm-controller")
            .path("--ipam-config", addresses.as_ref())
            .set("--webhook-bind-address", &"127.0.0.1:0")
            .switch("--webhook-listener", true)
            .set("--webhook-scope", &"evictions")
            .set("--webhook-client-ca-file", &directory.join("ca.crt").display())
            .set("--webhook-client-name", &neonvm_apiserver::server::CALLER);
        // There is never more than one of each here: names that stay take the lease back at once after a restart.
        let scheduler = with("scheduler").set("--identity", &"scheduler").switch("--do-migration", true);
        let autoscaler = with("pod-autoscaler").set("--service-network", &SERVICES);
        let autoscaler = PODS.iter().fold(autoscaler, |flags, network| flags.set("--scrape-allow", network));
        for (name, flags) in
            [("vm-controller", controller), ("scheduler", scheduler), ("pod-autoscaler", autoscaler)]
        {
            let flags = metrics.serve(flags, OWN, (&format!("neonvm-{name}"), name, None))?;
            all.push((name.to_owned(), flags));
        }
    }
    for index in 1..=args.nodes {
        all.extend(on_node(args, &start, index, (network, rooted), metrics)?);
    }
    Ok(all.into_iter().map(|(name, flags)| service(&logs, name, flags)).collect())
}

/// What runs on the node with this number.
fn on_node(
    args: &Args,
    start: &dyn Fn(&str) -> Flags,
    index: u8,
    (network, rooted): (Option<u8>, bool),
    metrics: &mut Metrics,
) -> anyhow::Result<Vec<(String, Flags)>> {
    let directory = &args.api.data_dir;
    let kubeconfig = directory.join("kubeconfig");
    let name = format!("n{index}");
    let flags = start("kubelet")
        .set("--name", &name)
        .set("--index", &index)
        .set("--cluster-dir", &directory.display())
        .maybe("--network-number", network)
        .set("--accel", &args.accel)
        .switch("--user-network", !rooted)
        .switch("--insecure-registries", args.insecure_registries)
        .path("--registry-ca-file", args.registry_ca_file.as_ref())
        .maybe("--cpu-milli", args.node_cpu_milli)
        .maybe("--memory", args.node_memory)
        .path("--kernels", args.kernels.as_ref())
        .path("--guest", args.guest.as_ref())
        .path("--image-store", args.image_store.as_ref())
        .path("--image-cache", args.image_cache.as_ref());
    let flags =
        args.image_files.iter().fold(flags, |flags, directory| flags.path("--image-files", Some(directory)));
    let mut all = vec![(format!("node-{name}"), flags)];
    let agent = start("agent")
        .set("--kubeconfig", &kubeconfig.display())
        .set("--node", &name)
        .set("--identity", &format!("agent-{name}"))
        .set("--history-dir", &directory.join("history").join(&name).display())
        .path("--config", args.agent_config.as_ref());
    let service = format!("agent-{name}");
    let agent = metrics.serve(agent, OWN, ("neonvm-agent", &service, Some(&name)))?;
    let agent = metrics.serve(agent, OF_VMS, ("neonvm-agent-vms", &service, Some(&name)))?;
    all.push((service, agent));
    if rooted {
        let overlay = network.map(neonvm_kubelet::overlay);
        let namespace = neonvm_kubelet::naming::node_namespace(&crate::kubelet::identity(directory), &name);
        let vxlan = start("vxlan-controller")
            .set("--kubeconfig", &kubeconfig.display())
            .set("--node", &name)
            .set("--netns", &namespace)
            .maybe("--range", overlay)
            // By way of the first node machines are reached from this computer.
            .maybe("--gateway", overlay.filter(|_| index == 1).and_then(|range| range.nth(1)));
        let service = format!("vxlan-controller-{name}");
        let vxlan = metrics.serve(vxlan, OWN, ("neonvm-vxlan-controller", &service, Some(&name)))?;
        all.push((service, vxlan));
    }
    Ok(all)
}

/// Addresses of machines on the overlay, as a file for the controller: the upper half of the cluster's range.
fn addresses(directory: &Path, number: u8) -> anyhow::Result<PathBuf> {
    let range = neonvm_kubelet::overlay(number);
    let start = range.nth(1 << 15).context("the overlay is too small")?;
    let config = serde_json::json!({
        "network_name": neonvm_api::overlay::NETWORK,
        "ipRanges": [{ "range": range.to_string(), "range_start": start }] });
    let path = directory.join(OVERLAY);
    Reserve::from_directory(directory)
        .lend(|| private::replace(&path, config.to_string().as_bytes()))
        .with_context(|| format!("cannot make {}", path.display()))?;
    Ok(path)
}

fn service(logs: &Path, name: String, flags: Flags) -> Service {
    let log = logs.join(format!("{name}.log"));
    let ends_last = name == API_SERVER;
    Service { name, argv: flags.0, log, ends_last }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use neonvm_pod_autoscaler::Network;

    use super::{PODS, SERVICES};

    #[test]
    fn pods_are_scraped_and_services_are_not() {
        assert!(SERVICES.parse::<Network>().unwrap().contains([10, 96, 0, 1].into()));
        let networks: Vec<Network> = PODS.iter().map(|text| text.parse().unwrap()).collect();
        for (address, is_scraped) in [
            ("127.0.0.1", false),
            ("127.1.255.255", false),
            ("127.2.0.1", true),
            ("127.63.255.254", true),
            ("127.64.0.1", true),
            ("127.191.255.254", true),
            ("127.192.0.0", false),
            ("169.254.169.254", false),
        ] {
            let address: IpAddr = address.parse().unwrap();
            let found = networks.iter().any(|network| network.contains(address));
            assert_eq!(found, is_scraped, "{address}");
        }
    }
}
