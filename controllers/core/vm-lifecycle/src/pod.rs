//! The runner pod: what the controller puts into it, from the VM alone.

mod affinity;
mod copy;
mod hooks;
mod metadata;
pub mod name;
pub mod overhead;
pub mod size;
mod volume;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction, HostAlias,
    ObjectFieldSelector, Pod, PodSecurityContext, PodSpec, Probe, ResourceRequirements, SeccompProfile,
    SecurityContext, Sysctl, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use neonvm_api::names::{RUNNER_CONTAINER, VM_API_VERSION, ssh_secret_name};
use neonvm_api::pod_annotation::Placement;
use neonvm_api::runner_pod::{
    AUTHORITIES_VARIABLE, COMMAND, CONFIG_DIGEST_VARIABLE, ExtraNet, LOG_FORMAT_VARIABLE, RunnerConfig,
    RunnerSettings, Seal, USER,
};
use neonvm_api::virtual_machine::PortProtocol;
use neonvm_api::{Power, VirtualMachine};
use neonvm_types::runner_protocol::READY_PATH;
use neonvm_types::{Accelerator, node_protocol};

use crate::settings::Settings;

pub use crate::pod_size::PodSize;
pub(crate) use copy::is_done as is_copied;
pub use metadata::{Metadata, change as metadata_change};
pub use size::size;

/// A VM for which no pod can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Its size cannot be computed.
    #[error("spec.guest.memorySlotSize: {0}")]
    SlotSize(String),
    /// The value of a field cannot be used.
    #[error("{path}: {message}")]
    Field {
        path: String,
        /// Why the field is invalid.
        message: String,
    },
    /// The policy does not permit the author to request it.
    #[error("{path}: {message}")]
    Refused {
        path: String,
        /// The policy, and how it can be changed.
        message: String,
    },
    /// The server left something out.
    #[error("the VM has no {0}")]
    Metadata(&'static str),
}

/// Name of the secret with a VM's SSH keys: that of its status, if there is one, because earlier versions named it otherwise.
///
/// # Errors
/// If the VM has no name or no UID yet.
pub fn ssh_secret(vm: &VirtualMachine) -> Result<String, PlanError> {
    if let Some(status) = vm.status.as_ref().filter(|status| !status.ssh_secret_name.is_empty()) {
        return Ok(status.ssh_secret_name.clone());
    }
    let name = vm.metadata.name.as_deref().ok_or(PlanError::Metadata("name"))?;
    let uid = vm.metadata.uid.as_deref().ok_or(PlanError::Metadata("uid"))?;
    Ok(ssh_secret_name(name, uid))
}

/// Owner reference of everything that belongs to the VM.
///
/// # Errors
/// If the object was never stored.
pub fn owner(vm: &VirtualMachine) -> Result<OwnerReference, PlanError> {
    Ok(OwnerReference {
        api_version: VM_API_VERSION.to_owned(),
        kind: "VirtualMachine".to_owned(),
        name: vm.metadata.name.clone().ok_or(PlanError::Metadata("name"))?,
        uid: vm.metadata.uid.clone().ok_or(PlanError::Metadata("uid"))?,
        controller: Some(true),
        block_owner_deletion: Some(true),
    })
}

/// Which nodes a VM's pod may be on: the spec's own rules, and its architecture.
#[must_use]
pub fn placement(vm: &VirtualMachine) -> Placement {
    Placement {
        node_selector: vm.spec.node_selector.clone(),
        affinity: Some(affinity::plan(vm.spec.affinity.as_ref(), vm.spec.target_architecture)),
        tolerations: tolerations(&vm.spec.tolerations),
    }
}

/// The runner's configuration for its VM.
///
/// # Errors
/// If the object was never stored.
pub fn config(vm: &VirtualMachine, pod: &str, settings: &Settings) -> Result<RunnerConfig, PlanError> {
    let status = vm.status.clone().unwrap_or_default();
    let network = vm.spec.extra_network.as_ref().filter(|network| network.enable);
    let extra_net = network.filter(|_| !status.extra_net_ip.is_empty()).map(|network| ExtraNet {
        interface: network.interface.clone(),
        ip: status.extra_net_ip,
        mask: status.extra_net_mask,
    });
    Ok(RunnerConfig {
        namespace: vm.metadata.namespace.clone().ok_or(PlanError::Metadata("namespace"))?,
        name: vm.metadata.name.clone().ok_or(PlanError::Metadata("name"))?,
        uid: vm.metadata.uid.clone().ok_or(PlanError::Metadata("uid"))?,
        pod: pod.to_owned(),
        spec: vm.spec.clone(),
        cpu_scaling_mode: vm.spec.cpu_scaling_mode.unwrap_or(settings.cpu_scaling_mode),
        extra_net,
        receive: None,
        claims: BTreeMap::new(),
        settings: RunnerSettings {
            node_access: settings.policy.allows(Power::NodeAccess),
            pod_size: settings.pod_size,
            ..settings.runner.clone()
        },
    })
}

/// Puts a seal into the environment of the runner of a planned pod, where it cannot be changed.
pub fn seal(pod: &mut Pod, seal: &Seal) {
    let containers = pod.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    for container in containers.filter(|container| container.name == RUNNER_CONTAINER) {
        let of = |name: &str, value: String| EnvVar {
            name: name.to_owned(),
            value: Some(value),
            ..EnvVar::default()
        };
        container.env.get_or_insert_default().extend([
            of(CONFIG_DIGEST_VARIABLE, seal.config.clone()),
            of(AUTHORITIES_VARIABLE, seal.authorities.join(",")),
        ]);
    }
}

/// The digest of the configuration with which a pod was made; none for those of versions that did not seal it.
#[must_use]
pub fn sealed(pod: &Pod) -> Option<&str> {
    let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let runner = containers.find(|container| container.name == RUNNER_CONTAINER)?;
    let mut variables = runner.env.iter().flatten();
    variables.find(|variable| variable.name == CONFIG_DIGEST_VARIABLE)?.value.as_deref()
}

/// The runner pod of a VM, without its [`seal`].
///
/// # Errors
/// If a size of the spec cannot be used, if the policy in the settings refuses a part of it, or if the object was never stored.
pub fn plan(vm: &VirtualMachine, name: &str, settings: &Settings) -> Result<Pod, PlanError> {
    let spec = &vm.spec;
    if let Some(refusal) = settings.policy.refusals(spec).into_iter().next() {
        return Err(PlanError::Refused { path: refusal.path, message: refusal.message });
    }
    let metadata::DesiredMetadata { labels, annotations } = metadata::wanted(vm, settings)?;
    let volumes = volume::plan(vm, name, settings.root_disk)?;
    let image = spec.runner_image.clone().unwrap_or_else(|| settings.runner_image.clone());
    let mut init_containers = copy::containers(vm, &image, settings.root_disk);
    init_containers.extend(spec.extra_init_containers.iter().map(confined));
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    let mut pod_spec = PodSpec {
        automount_service_account_token: Some(false),
        containers: vec![runner(vm, &image, &volumes, settings)?],
        enable_service_links: spec.service_links,
        host_aliases: Some(vec![HostAlias {
            ip: node_protocol::GUEST.to_string(),
            hostnames: Some(vec![GUEST_NAME.to_owned()]),
        }]),
        image_pull_secrets: (!spec.image_pull_secrets.is_empty()).then(|| spec.image_pull_secrets.clone()),
        init_containers: (!init_containers.is_empty()).then_some(init_containers),
        priority_class_name: text(&spec.priority_class_name).or_else(|| text(&settings.priority_class)),
        restart_policy: Some("Never".to_owned()),
        scheduler_name: text(&spec.scheduler_name).or_else(|| text(&settings.scheduler)),
        security_context: Some(pod_context(vm)),
        service_account_name: text(&spec.service_account_name),
        termination_grace_period_seconds: spec.termination_grace_period_seconds,
        volumes: Some(volumes.volumes),
        ..PodSpec::default()
    };
    placement(vm).put(&mut pod_spec);
    Ok(Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: vm.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![owner(vm)?]),
            ..ObjectMeta::default()
        },
        spec: Some(pod_spec),
        status: None,
    })
}

/// A node that is lost for half a minute loses its machines.
fn tolerations(own: &[Toleration]) -> Vec<Toleration> {
    let lost = |key: &str| Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        toleration_seconds: Some(30),
        ..Toleration::default()
    };
    let mut all = own.to_vec();
    all.extend([lost("node.kubernetes.io/not-ready"), lost("node.kubernetes.io/unreachable")]);
    all
}

/// A container from the VM's spec: with the rights of the others, whatever it requests. A user of its own it may choose, but for root.
fn confined(container: &Container) -> Container {
    let mut container = container.clone();
    let own = container.security_context.take().unwrap_or_default();
    container.security_context = Some(SecurityContext {
        run_as_user: own.run_as_user.filter(|user| *user != 0).or(Some(USER)),
        run_as_group: own.run_as_group.or(Some(USER)),
        read_only_root_filesystem: own.read_only_root_filesystem,
        ..restricted()
    });
    for port in container.ports.iter_mut().flatten() {
        port.host_port = None;
    }
    container
}

fn runtime_default() -> SeccompProfile {
    SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }
}

/// What every container of the pod has: no right at all, from its first instruction on. The level `restricted` of Pod Security demands no
/// more; what needs a right, the node service does.
fn restricted() -> SecurityContext {
    SecurityContext {
        privileged: Some(false),
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
        run_as_non_root: Some(true),
        run_as_user: Some(USER),
        run_as_group: Some(USER),
        seccomp_profile: Some(runtime_default()),
        ..SecurityContext::default()
    }
}

/// The same for what belongs to all containers: their volumes, and the ports that they may listen on.
fn pod_context(vm: &VirtualMachine) -> PodSecurityContext {
    let port = vm.spec.runner_port;
    let sysctl = Sysctl { name: PORTS_OF_ALL.to_owned(), value: port.to_string() };
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(USER),
        run_as_group: Some(USER),
        fs_group: Some(USER),
        seccomp_profile: Some(runtime_default()),
        sysctls: (port < FIRST_FREE_PORT).then(|| vec![sysctl]),
        ..PodSecurityContext::default()
    }
}

/// Parameter with the first port that needs no right; Kubernetes permits pods to set it in their own network.
const PORTS_OF_ALL: &str = "net.ipv4.ip_unprivileged_port_start";
/// Its value in a new network.
const FIRST_FREE_PORT: u16 = 1024;
/// Name of the guest in the pod, for people and scripts in it.
const GUEST_NAME: &str = "guest-vm";

/// Period in seconds, and failures that count, of the probe until the guest is up. A guest may take any time: its VM is not killed for it.
const STARTUP: (i32, i32) = (1, i32::MAX);
/// The same from then on. Each probe wakes the runner, also that of a suspended VM.
const READINESS: (i32, i32) = (10, 3);

fn probe(port: u16, (period, failures): (i32, i32)) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(READY_PATH.to_owned()),
            port: IntOrString::Int(i32::from(port)),
            scheme: Some("HTTPS".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

fn runner(
    vm: &VirtualMachine,
    image: &str,
    volumes: &volume::Plan,
    settings: &Settings,
) -> Result<Container, PlanError> {
    let port = vm.spec.runner_port;
    Ok(Container {
        name: RUNNER_CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(COMMAND.into_iter().map(str::to_owned).collect()),
        env: Some(environment(settings, vm.spec.enable_acceleration)),
        ports: Some(ports(vm)),
        startup_probe: Some(probe(port, STARTUP)),
        readiness_probe: Some(probe(port, READINESS)),
        resize_policy: settings.pod_size.then(size::policy),
        resources: Some(resources(vm, settings)?),
        security_context: Some(restricted()),
        volume_mounts: Some(volumes.mounts.clone()),
        ..Container::default()
    })
}

fn environment(settings: &Settings, is_accelerated: bool) -> Vec<EnvVar> {
    let field = |name: &str, path: &str| EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { api_version: None, field_path: path.to_owned() }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    };
    let mut all = vec![
        field("K8S_POD_NAME", "metadata.name"),
        field("K8S_POD_NAMESPACE", "metadata.namespace"),
        field("K8S_POD_IP", "status.podIP"),
        field("K8S_POD_IPS", "status.podIPs"),
        field("K8S_NODE_NAME", "spec.nodeName"),
    ];
    let accelerator = match settings.accelerator {
        Accelerator::Auto => None,
        Accelerator::Kvm => is_accelerated.then_some("kvm"),
        Accelerator::Tcg => Some("tcg"),
    };
    if let Some(value) = accelerator {
        let (name, value) = ("NEONVM_ACCEL".to_owned(), Some(value.to_owned()));
        all.push(EnvVar { name, value, ..EnvVar::default() });
    }
    if settings.json_logs {
        let (name, value) = (LOG_FORMAT_VARIABLE.to_owned(), Some("json".to_owned()));
        all.push(EnvVar { name, value, ..EnvVar::default() });
    }
    all
}

fn ports(vm: &VirtualMachine) -> Vec<ContainerPort> {
    let port = |name: &str, number: u16, protocol: &str| ContainerPort {
        name: (!name.is_empty()).then(|| name.to_owned()),
        container_port: i32::from(number),
        protocol: Some(protocol.to_owned()),
        ..ContainerPort::default()
    };
    let mut all = vec![port("runner", vm.spec.runner_port, "TCP")];
    all.extend(vm.spec.guest.ports.iter().map(|guest| {
        let protocol = match guest.protocol {
            PortProtocol::Tcp => "TCP",
            PortProtocol::Udp => "UDP",
        };
        port(&guest.name, guest.port, protocol)
    }));
    all
}

fn resources(vm: &VirtualMachine, settings: &Settings) -> Result<ResourceRequirements, PlanError> {
    let mut resources = vm.spec.pod_resources.clone();
    if settings.pod_size {
        resources = size::with(&resources, &size(vm, size::at_start(vm)?, false, settings));
    }
    if settings.device_plugin {
        let limits = resources.limits.get_or_insert_default();
        for resource in [node_protocol::RESOURCE, "neonvm/vhost-net"] {
            limits.insert(resource.to_owned(), Quantity("1".to_owned()));
        }
        if vm.spec.enable_acceleration {
            limits.insert("neonvm/kvm".to_owned(), Quantity("1".to_owned()));
        }
    }
    Ok(resources)
}
