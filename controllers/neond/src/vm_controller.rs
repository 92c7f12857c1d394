//! `neond vm-controller`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use neonvm_api::lifetimes::Lifetimes;
use neonvm_api::virtual_machine::CpuScalingMode;
use neonvm_vm_controller::{
    AddressSource, Config, Registration, RootDiskFrom, WebhookClient, WebhookConfig, WebhookScope,
};

/// Life of a certificate and of an authority unless others are chosen, in seconds.
const DEFAULT_LIFE: (u64, u64) =
    (Lifetimes::DEFAULT.certificate().unsigned_abs(), Lifetimes::DEFAULT.authority().unsigned_abs());

/// Flags.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    service: crate::service::ServiceArgs,
    /// Life of certificates of services, runners and webhooks in seconds, at least 60. Each is renewed when two thirds of it are over;
    /// with less than 600 the kubelet may be too slow to bring a runner its new one
    #[arg(long, env = "NEONVM_CERTIFICATE_LIFETIME", value_name = "SECONDS", default_value_t = DEFAULT_LIFE.0)]
    certificate_lifetime: u64,
    /// Life of the internal authority that signs them in seconds, at least ten times that of certificates. The next authority is
    /// trusted before two thirds of it are over
    #[arg(long, env = "NEONVM_AUTHORITY_LIFETIME", value_name = "SECONDS", default_value_t = DEFAULT_LIFE.1)]
    authority_lifetime: u64,
    /// Image of runners
    #[arg(long, env = "VM_RUNNER_IMAGE", default_value = concat!("neonvm-runner:", env!("CARGO_PKG_VERSION")))]
    runner_image: String,
    /// What authors of VMs may use in every namespace, comma separated: runner-image, init-containers, init-script, overcommit,
    /// scheduler, service-account, network, node-access, node-files, migration-priority. Labels allow.vm.neon.tech/NAME of a namespace take precedence
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    allow: Vec<neonvm_api::Power>,
    /// Labels and annotations of VMs that are copied to their pods besides those that the documentation lists, comma separated: keys,
    /// or prefixes that end with /, for example example.com/team,prometheus.io/. Network plugins, container runtimes and webhooks take
    /// orders from some of them: what is named here every author of VMs may request
    #[arg(long, value_name = "KEYS", value_delimiter = ',', value_parser = metadata_key)]
    pod_metadata: Vec<String>,
    /// CPU scaling mode of VMs whose objects do not set it
    #[arg(long, default_value = "SysfsScaling", value_parser = ["SysfsScaling", "QmpScaling"])]
    default_cpu_scaling_mode: String,
    /// CPU model of VMs whose objects set none, by QEMU's name, for nodes with unlike processors [default: all that the node's
    /// processor has]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, value_parser = cpu_model)]
    cpu_model: String,
    /// Scheduler of VMs whose objects name none [default: that of the cluster]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    vm_scheduler: String,
    /// `PriorityClass` of VMs whose objects name none [default: that of the cluster]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    vm_priority_class: String,
    /// Do not limit the CPU of VMs with cgroups
    #[arg(long)]
    disable_runner_cgroup: bool,
    /// How QEMU opens disks: buffered (by the page cache of the node) or direct (bypassing it). Both flush when the guest does
    #[arg(long, value_name = "MODE", default_value = "buffered", value_parser = ["buffered", "direct"])]
    disk_cache: String,
    /// Hooks of backups in pods of VMs that write to volumes: velero (annotations by which it freezes the file systems of the guest) or
    /// none
    #[arg(long, value_name = "KIND", default_value = "velero", value_parser = ["velero", "none"])]
    backup_hooks: String,
    /// How runners write their own lines in the logs of their pods
    #[arg(long, env = neonvm_api::runner_pod::LOG_FORMAT_VARIABLE, value_name = "FORMAT", value_enum, default_value_t)]
    runner_log_format: crate::log::Format,
    /// Ratio of movable to kernel memory when memory is plugged
    #[arg(long, default_value = "401")]
    memhp_auto_movable_ratio: String,
    /// Request neonvm/kvm, neonvm/node and neonvm/vhost-net for runner pods, from the node service
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    device_plugin: bool,
    /// Requests of runner pods: auto (those of the VM, followed by in-place resize from Kubernetes 1.35) or off (none)
    #[arg(long, default_value = "auto", value_parser = ["auto", "off"])]
    pod_size: String,
    /// Source of root disks and kernels: image-volume (the node mounts the image), or copy (an init container copies
    /// the file into the pod), for nodes without image volumes
    #[arg(long, default_value = "image-volume", value_parser = ["image-volume", "copy"])]
    root_disk: String,
    /// Accelerator of VMs: auto (KVM if it is in the pod and runs guest code), kvm or tcg (emulation)
    #[arg(long, default_value = "auto", value_parser = ["auto", "kvm", "tcg"])]
    accelerator: String,
    /// VMs reconciled concurrently
    #[arg(long, default_value_t = 128)]
    concurrency_limit: usize,
    /// Maximum of concurrent migrations
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    max_migrations: u16,
    /// Maximum of concurrent migrations of the VMs of one namespace, away from nodes that are not cordoned
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    max_migrations_of_namespace: u16,
    /// Maximum of concurrent migrations away from a node
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    max_migrations_from_node: u16,
    /// Maximum of concurrent migrations to a node
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    max_migrations_to_node: u16,
    /// Timeout, in seconds, until the target pod of a migration is ready
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    migration_prepare_timeout: u32,
    /// Elect a leader among the replicas
    #[arg(long)]
    leader_elect: bool,
    #[command(flatten)]
    lease: crate::lease::LeaseArgs,
    /// Address of the webhook server
    #[arg(long)]
    webhook_bind_address: Option<SocketAddr>,
    /// Register the webhooks under this service of the controller's namespace
    #[arg(long, requires = "webhook_bind_address")]
    webhook_service: Option<String>,
    /// Register the webhooks under the address of the webhook server
    #[arg(long, requires = "webhook_bind_address", conflicts_with = "webhook_service")]
    webhook_listener: bool,
    /// Webhooks to register; only evictions if the API server itself admits VMs and migrations
    #[arg(long, default_value = "all", value_parser = ["all", "evictions"])]
    webhook_scope: String,
    /// Also register the webhooks for PodAutoscalers, which the pod-autoscaler serves behind the Service neonvm-pod-autoscaler;
    /// only with --webhook-service
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    pod_autoscaler_webhooks: bool,
    /// PEM file with the authority of the client certificate that the API server shows to webhooks; other clients are then
    /// refused. For example /etc/kubernetes/pki/ca.crt [default: any client is accepted, and requests are verified against the
    /// API]
    #[arg(long, value_name = "FILE", requires_all = ["webhook_bind_address", "webhook_client_name"])]
    webhook_client_ca_file: Option<PathBuf>,
    /// Common name of that certificate; repeatable
    #[arg(long, value_name = "NAME", requires = "webhook_client_ca_file")]
    webhook_client_name: Vec<String>,
    /// VMs for which a failing update validation only warns: NAMESPACE/NAME, comma separated
    #[arg(long, default_value = "")]
    skip_update_validation_for: String,
    /// JSON file with the ipRanges of the overlay network, as in the ipam of a network attachment [default:
    /// 10.100.0.0/16 from 10.100.128.0 on]
    #[arg(long, value_name = "FILE", conflicts_with = "nad_ipam_name")]
    ipam_config: Option<PathBuf>,
    /// Name of a NetworkAttachmentDefinition with the ipRanges
    #[arg(long, env = "NAD_IPAM_NAME", requires = "nad_ipam_namespace")]
    nad_ipam_name: Option<String>,
    /// Namespace of that NetworkAttachmentDefinition
    #[arg(long, env = "NAD_IPAM_NAMESPACE")]
    nad_ipam_namespace: Option<String>,
    /// Name of the network attachment of runner pods on the overlay
    #[arg(long, env = "NAD_RUNNER_NAME", default_value = neonvm_api::overlay::ATTACHMENT)]
    nad_runner_name: String,
    /// Namespace of that network attachment [default: that of the controller]
    #[arg(long, env = "NAD_RUNNER_NAMESPACE")]
    nad_runner_namespace: Option<String>,
    /// Quarantine of a released overlay address, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    address_quarantine: u32,
}

/// A name that QEMU can have for a CPU model, or none.
fn cpu_model(text: &str) -> Result<String, String> {
    if text.is_empty() || neonvm_api::virtual_machine::is_cpu_model(text) {
        return Ok(text.to_owned());
    }
    Err("a name has at most 64 letters, digits, '.', '_' and '-', such as EPYC-v1".to_owned())
}

fn metadata_key(text: &str) -> Result<String, String> {
    let (prefix, name) = text.split_once('/').unwrap_or(("example.com", text));
    let of = |text: &str, more: &[u8]| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
    };
    if !of(prefix, b"-.") || !(name.is_empty() || of(name, b"-_.")) {
        return Err("a key is like example.com/team, a prefix like example.com/".to_owned());
    }
    if prefix == "neon.tech" || prefix.ends_with(".neon.tech") {
        return Err("keys of neon.tech are copied as the documentation lists them".to_owned());
    }
    Ok(text.to_owned())
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    crate::service::take_open_files();
    crate::service::run(async {
        args.service.wait().await?;
        Ok(neonvm_vm_controller::run(config(args)?, neonvm_kit::termination::requested()?).await?)
    })
}

fn config(args: &Args) -> anyhow::Result<Config> {
    let mut config = Config {
        kubeconfig: args.service.kubeconfig.clone(),
        namespace: args.service.namespace.clone(),
        concurrency: args.concurrency_limit,
        metrics: args.service.metrics_bind_address,
        probes: args.service.health_probe_bind_address,
        skip_update_validation: Config::parse_names(&args.skip_update_validation_for),
        lifetimes: Lifetimes::new(args.certificate_lifetime, args.authority_lifetime)
            .context("--certificate-lifetime, --authority-lifetime")?,
        ..Config::default()
    };
    config.settings.runner_image.clone_from(&args.runner_image);
    config.settings.policy.allowed = args.allow.iter().copied().collect();
    config.settings.pod_metadata.clone_from(&args.pod_metadata);
    config.settings.device_plugin = args.device_plugin;
    config.settings.pod_size = args.pod_size == "auto";
    config.settings.root_disk = match args.root_disk.as_str() {
        "copy" => RootDiskFrom::Copy,
        _ => RootDiskFrom::ImageVolume,
    };
    config.settings.accelerator = args.accelerator.parse().map_err(anyhow::Error::msg)?;
    config.settings.cpu_scaling_mode = match args.default_cpu_scaling_mode.as_str() {
        "QmpScaling" => CpuScalingMode::QmpScaling,
        _ => CpuScalingMode::SysfsScaling,
    };
    let migration = &mut config.settings.migration;
    migration.cluster = args.max_migrations.into();
    migration.namespace = args.max_migrations_of_namespace.into();
    migration.outbound = args.max_migrations_from_node.into();
    migration.inbound = args.max_migrations_to_node.into();
    migration.prepare_timeout = args.migration_prepare_timeout.into();
    config.settings.runner.cgroup = !args.disable_runner_cgroup;
    config.settings.runner.direct_io = args.disk_cache == "direct";
    config.settings.backup_hooks = args.backup_hooks == "velero";
    config.settings.json_logs = args.runner_log_format == crate::log::Format::Json;
    config.settings.runner.cpu_model.clone_from(&args.cpu_model);
    config.settings.scheduler.clone_from(&args.vm_scheduler);
    config.settings.priority_class.clone_from(&args.vm_priority_class);
    config.settings.runner.memhp_auto_movable_ratio.clone_from(&args.memhp_auto_movable_ratio);
    overlay(args, &mut config);
    if args.leader_elect {
        let mut lease = config.lease(args.service.identity());
        lease.times = args.lease.times()?;
        config.leader_election = Some(lease);
    }
    if let Some(listen) = args.webhook_bind_address {
        let service = args.webhook_service.as_ref().map(|name| Registration::Service {
            namespace: args.service.namespace.clone(),
            name: name.clone(),
            port: 443,
        });
        let register = service.or(args.webhook_listener.then_some(Registration::Listener));
        let scope =
            if args.webhook_scope == "evictions" { WebhookScope::Evictions } else { WebhookScope::All };
        let client = args.webhook_client_ca_file.as_ref().map(|authority| WebhookClient {
            authority: authority.clone(),
            names: args.webhook_client_name.clone(),
        });
        let names = vec![listen.ip().to_string()];
        let autoscaler = args.pod_autoscaler_webhooks;
        config.webhook = Some(WebhookConfig { listen, names, register, scope, autoscaler, client });
    }
    anyhow::Ok(config).context("flags")
}

/// Addresses, and the network attachment of runner pods.
fn overlay(args: &Args, config: &mut Config) {
    let namespace = args.nad_runner_namespace.as_ref().unwrap_or(&args.service.namespace);
    let attachment = format!("{namespace}/{}", args.nad_runner_name);
    config.settings.policy.attachments.insert(attachment.clone());
    config.settings.network_attachment = Some(attachment);
    config.addresses.quarantine = Duration::from_secs(args.address_quarantine.into());
    if let Some(path) = &args.ipam_config {
        config.addresses.source = AddressSource::File(path.clone());
    } else if let (Some(namespace), Some(name)) = (&args.nad_ipam_namespace, &args.nad_ipam_name) {
        config.addresses.source =
            AddressSource::Attachment { namespace: namespace.clone(), name: name.clone() };
    }
}
