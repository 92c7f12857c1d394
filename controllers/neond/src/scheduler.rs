//! `neond scheduler`

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context as _;
use neonvm_kit::lease::Beside;
use neonvm_scheduler::{Config, Mode};

/// Flags.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    service: crate::service::ServiceArgs,
    #[command(flatten)]
    lease: crate::lease::LeaseArgs,
    /// Lease of the kube-scheduler in the same pod, in the same namespace: this replica leads only while that one does, because
    /// each kube-scheduler calls the extender in its own pod. Requires --identity with the name of the pod [default: the
    /// kube-scheduler has no lease]
    #[arg(long, value_name = "NAME", requires = "identity")]
    kube_scheduler_lease: Option<String>,
    /// "bind": this scheduler binds every pod, for clusters without another scheduler; "extender": a kube-scheduler binds pods
    /// and calls this scheduler
    #[arg(long, default_value = "bind", value_parser = ["bind", "extender"])]
    mode: String,
    /// Address of the server for agents, users and kube-schedulers, with mutual TLS
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Address of a second server for agents with plain HTTP, without authentication [default: nowhere]. On a loopback address it
    /// also serves the extender
    #[arg(long)]
    plain_listen: Option<SocketAddr>,
    /// Address of the server for the dump of the state, with plain HTTP and without authentication: GET / with the body {}
    /// [default: port dumpState.port of the configuration file on 127.0.0.1, or nowhere]
    #[arg(long)]
    dump_state_bind_address: Option<SocketAddr>,
    /// Address of this pod that is published to clients
    #[arg(long, env = "POD_IP")]
    pod_ip: Option<IpAddr>,
    /// Configuration file, JSON, with the keys of the upstream scheduler; flags override it
    #[arg(long)]
    config: Option<PathBuf>,
    /// Watermark: share of a node's CPU and memory above which VMs are migrated away; above 0, at most 1 [default: 0.9]
    #[arg(long)]
    watermark: Option<f64>,
    /// Create migrations, above the watermark, of VMs that have the label
    /// autoscaling.neon.tech/auto-migration-enabled=true. Without this flag migrations are only planned and shown
    #[arg(long)]
    do_migration: bool,
    /// Requests of runner pods, as the vm-controller has it: auto (those of the VM, followed by in-place resize where the cluster has
    /// it; a pod then counts for what it requests, and beyond that only for what its agent was permitted) or off (none; the size in
    /// the pod's annotations counts)
    #[arg(long, default_value = "auto", value_parser = ["auto", "off"])]
    pod_size: String,
    /// Maximum of concurrent migrations away from a node [default: 1]
    #[arg(long)]
    migrations_per_node: Option<u32>,
    /// Namespaces whose pods do not count against permits, comma separated
    #[arg(long, value_delimiter = ',')]
    ignored_namespaces: Vec<String>,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    crate::service::take_open_files();
    crate::service::run(async {
        let config = config(args)?;
        args.service.wait().await?;
        Ok(neonvm_scheduler::run(config, neonvm_kit::termination::requested()?).await?)
    })
}

fn config(args: &Args) -> anyhow::Result<Config> {
    let mut config = Config {
        kubeconfig: args.service.kubeconfig.clone(),
        namespace: args.service.namespace.clone(),
        identity: args.service.identity(),
        mode: if args.mode == "extender" { Mode::Extender } else { Mode::Bind },
        listen: args.listen,
        plain: args.plain_listen,
        metrics: args.service.metrics_bind_address,
        probes: args.service.health_probe_bind_address,
        pod_ip: args.pod_ip,
        lease: args.lease.times()?,
        ..Config::default()
    };
    // A kube-scheduler is identified in its lease by the name of its host, which in a pod is that of the pod, and a
    // random number.
    config.beside = args
        .kube_scheduler_lease
        .clone()
        .map(|name| Beside { name, holder: format!("{}_", config.identity) });
    if let Some(path) = &args.config {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let idle = neonvm_scheduler::apply_file(&mut config, &text)
            .with_context(|| format!("{} cannot be used", path.display()))?;
        for key in idle {
            tracing::warn!(key, "a key of the configuration file has no effect");
        }
    }
    config.dump_state = args.dump_state_bind_address.or(config.dump_state);
    let settings = &mut config.settings;
    if let Some(watermark) = args.watermark {
        (settings.watermark.cpu, settings.watermark.mem) = (watermark, watermark);
    }
    settings.pods_are_resized = args.pod_size == "auto";
    settings.do_migration |= args.do_migration;
    settings.migrations_per_node = args.migrations_per_node.unwrap_or(settings.migrations_per_node);
    settings.ignored_namespaces.extend(args.ignored_namespaces.iter().cloned());
    let errors: Vec<String> = settings.validate().iter().map(ToString::to_string).collect();
    anyhow::ensure!(errors.is_empty(), "{}", errors.join("; "));
    Ok(config)
}
