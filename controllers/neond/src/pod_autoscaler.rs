//! `neond pod-autoscaler`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use neonvm_pod_autoscaler::{Config, Network, WebhookConfig};

/// Flags.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Endpoints that a PodAutoscaler names are read from where this service runs. Loopback, link-local and metadata \
addresses, multicast and the network of Services are refused, also behind a name that resolves to them; redirects are not followed. \
Pods and nodes are read.\n\n\
Example:\n  neond pod-autoscaler --leader-elect --service-network 10.96.0.0/12 --scrape-allow 10.96.7.20"
)]
pub(crate) struct Args {
    #[command(flatten)]
    service: crate::service::ServiceArgs,
    /// PodAutoscalers reconciled concurrently
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    concurrency_limit: u16,
    /// Metrics endpoints read concurrently, over all PodAutoscalers
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..))]
    scrape_limit: u16,
    /// Metrics endpoints of one PodAutoscaler read concurrently
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..))]
    scrape_limit_per_object: u16,
    /// Memory for all responses longer than 32 KiB, in MiB; half of it is for those longer than 1 MiB, of which each may
    /// have 16 MiB. Further responses wait
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u16).range(32..=4096))]
    scrape_memory: u16,
    /// Allowed network of metrics endpoints that is otherwise refused, such as 10.96.7.20 for one Service; repeatable
    #[arg(long, value_name = "CIDR")]
    scrape_allow: Vec<Network>,
    /// Network of Services, refused for metrics endpoints; repeatable [default: from the cluster's ServiceCIDR objects, from
    /// Kubernetes 1.33]
    #[arg(long, value_name = "CIDR")]
    service_network: Vec<Network>,
    /// Timeout of one metrics endpoint, in milliseconds
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..=60_000))]
    scrape_timeout_ms: u32,
    /// Timeout of all metrics endpoints of one PodAutoscaler in one evaluation, in milliseconds
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..=600_000))]
    scrape_object_timeout_ms: u32,
    /// PEM file with the certificate authorities of https endpoints [default: certificates are not
    /// verified, as with probes of the kubelet]
    #[arg(long, value_name = "FILE")]
    scrape_ca_file: Option<PathBuf>,
    /// Elect a leader among the replicas
    #[arg(long)]
    leader_elect: bool,
    #[command(flatten)]
    lease: crate::lease::LeaseArgs,
    /// Address of the webhook server for PodAutoscalers, with a certificate of the vm-controller's authority. The vm-controller
    /// registers the webhooks with --pod-autoscaler-webhooks [default: nowhere]
    #[arg(long)]
    webhook_bind_address: Option<SocketAddr>,
    /// PEM file with the authority of the client certificate that the API server shows to webhooks; other clients are then
    /// refused [default: any client is accepted]
    #[arg(long, value_name = "FILE", requires_all = ["webhook_bind_address", "webhook_client_name"])]
    webhook_client_ca_file: Option<PathBuf>,
    /// Common name of that certificate; repeatable
    #[arg(long, value_name = "NAME", requires = "webhook_client_ca_file")]
    webhook_client_name: Vec<String>,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    crate::service::take_open_files();
    crate::service::run(async {
        args.service.wait().await?;
        Ok(neonvm_pod_autoscaler::run(config(args)?, neonvm_kit::termination::requested()?).await?)
    })
}

fn config(args: &Args) -> anyhow::Result<Config> {
    let client = args.webhook_client_ca_file.as_ref().map(|authority| neonvm_kit::webhook::Client {
        authority: authority.clone(),
        names: args.webhook_client_name.clone(),
    });
    let mut config = Config {
        kubeconfig: args.service.kubeconfig.clone(),
        namespace: args.service.namespace.clone(),
        concurrency: args.concurrency_limit.into(),
        scrapes: args.scrape_limit.into(),
        scrapes_of_one: args.scrape_limit_per_object.into(),
        scrape_memory: usize::from(args.scrape_memory) << 20,
        scrape_allowed: args.scrape_allow.clone(),
        service_networks: args.service_network.clone(),
        scrape_turn: Duration::from_millis(args.scrape_object_timeout_ms.into()),
        scrape_timeout: Duration::from_millis(args.scrape_timeout_ms.into()),
        scrape_authority: args.scrape_ca_file.clone(),
        leader_election: None,
        metrics: args.service.metrics_bind_address,
        probes: args.service.health_probe_bind_address,
        webhooks: args.webhook_bind_address.map(|listen| WebhookConfig { listen, client }),
    };
    if args.leader_elect {
        let identity = args.service.identity();
        let mut lease = config.lease(identity);
        lease.times = args.lease.times()?;
        config.leader_election = Some(lease);
    }
    Ok(config)
}
