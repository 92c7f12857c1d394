//! What an object, a text of metrics or a message of the monitor means to the core.

use neonvm_api::virtual_machine::PowerState;
use neonvm_api::{VirtualMachine, VirtualMachineStatus, VmInfo};
use neonvm_core_vertical_scaling::agent::{Event, Verdict, Vm};
use neonvm_types::monitor_protocol::MonitorMessage;
use neonvm_types::{Bytes, NamespacedName, Resources};

use crate::monitor::MonitorEvent;
use crate::shared::Shared;

/// What a VM is called, and where its pod is.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) vm: NamespacedName,
    pub(crate) uid: String,
    pub(crate) generation: Option<i64>,
    pub(crate) pod: NamespacedName,
    pub(crate) slot: Bytes,
}

impl Identity {
    pub(crate) fn from_vm(vm: &VirtualMachine) -> Self {
        let namespace = vm.metadata.namespace.clone().unwrap_or_default();
        let pod = vm.status.as_ref().map(|status| status.pod_name.clone()).unwrap_or_default();
        Self {
            vm: NamespacedName::new(namespace.clone(), vm.metadata.name.clone().unwrap_or_default()),
            uid: vm.metadata.uid.clone().unwrap_or_default(),
            generation: vm.metadata.generation,
            pod: NamespacedName::new(namespace, pod),
            slot: vm.spec.guest.slot_size().unwrap_or(Bytes::gib(1)),
        }
    }
}

/// What of the guest's metrics matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Watched {
    /// Name of the user's own metric.
    pub(crate) metric: Option<String>,
    /// Whether the file cache is read.
    pub(crate) lfc: bool,
    /// Names and places of disks.
    pub(crate) disks: Vec<(String, String)>,
}

/// Whether the guest of a VM may have an informant.
pub(crate) fn may_have_informant(shared: &Shared, vm: &VirtualMachine) -> bool {
    let label = |key: &str| vm.metadata.labels.as_ref()?.get(key).map(String::as_str);
    shared.informants.as_ref().is_some_and(|informants| informants.config.selects(label))
}

impl Watched {
    pub(crate) fn from_shared(shared: &Shared, vm: &VirtualMachine) -> Self {
        let config = VmInfo::from_vm(vm).map(|info| info.config).unwrap_or_default();
        let lfc = config.scaling_config.and_then(|config| config.enable_lfc_metrics);
        Self {
            metric: config.metric.map(|metric| metric.name),
            lfc: lfc.or(shared.settings.defaults.enable_lfc_metrics).unwrap_or(false),
            disks: vm.spec.mounted_disks(),
        }
    }
}

/// The object in the core's form; `None` if it is invalid, which [`super::check`] reports before.
pub(crate) fn observe(shared: &Shared, vm: &VirtualMachine) -> Option<Vm> {
    let info = VmInfo::from_vm(vm).ok()?;
    let status = vm.status.as_ref();
    let cpu = status.and_then(|status| status.cpus);
    let memory = status.and_then(|status| status.memory_size).and_then(|size| Bytes::try_from(size).ok());
    let observed = match (cpu, memory) {
        (None, None) => None,
        (cpu, memory) => Some(Resources::new(cpu.unwrap_or_default(), memory.unwrap_or_default())),
    };
    let hold = info.config.hold.map(|hold| (hold.size, shared.at(hold.until)));
    let forced = info.config.hold.is_some_and(|hold| hold.force);
    // What the vm-controller writes of a pod that its node does not resize.
    let denied = status.and_then(|status| status.conditions.iter().find(|one| one.type_ == "Scaled"));
    let denied = denied.filter(|one| one.status == "False" && one.reason.starts_with("Resize"));
    let denied = denied.map(|one| one.message.clone());
    let migrating = status.is_some_and(VirtualMachineStatus::size_is_held);
    let (paused, suspended) = (is_paused(vm), suspended(vm));
    let generation = vm.metadata.generation;
    Some(Vm { info, observed, hold, forced, denied, migrating, paused, suspended, generation })
}

/// Since when a VM is suspended, and what wakes it.
fn suspended(vm: &VirtualMachine) -> Option<String> {
    let mut conditions = vm.status.as_ref()?.conditions.iter();
    let found = conditions.find(|one| one.type_ == "Suspended" && one.status == "True")?;
    let wakes = if vm.spec.wakes_on_network() { "network" } else { "commands" };
    Some(format!("since {}, wakes on {wakes}", found.last_transition_time.0))
}

/// Whether the guest stands still by the status, or is to by the spec.
pub(crate) fn is_paused(vm: &VirtualMachine) -> bool {
    let still = |state| matches!(state, Some(PowerState::Paused | PowerState::Suspended));
    still(vm.spec.power_state) || vm.status.as_ref().is_some_and(|status| still(status.power_state))
}

pub(crate) fn of_monitor(event: MonitorEvent) -> Event {
    match event {
        MonitorEvent::Connected(peer) => Event::MonitorConnected { version: peer.monitor_version() },
        MonitorEvent::Suspended(_) => Event::MonitorSuspended,
        MonitorEvent::Lost(reason) => Event::MonitorLost { reason },
        MonitorEvent::Alive => Event::MonitorAlive,
        MonitorEvent::Wants(wants) => Event::UpscaleRequested { wants },
        MonitorEvent::Reply { id, result } => {
            let result = result.and_then(|message| match message {
                MonitorMessage::UpscaleConfirmation => Ok(Verdict::Confirmed),
                MonitorMessage::DownscaleResult { ok: true, status } => Ok(Verdict::Agreed { status }),
                MonitorMessage::DownscaleResult { ok: false, status } => Ok(Verdict::Denied { status }),
                MonitorMessage::InternalError { error } | MonitorMessage::InvalidMessage { error } => {
                    Err(error)
                }
                other => Err(format!("{} is no answer", other.kind())),
            });
            Event::MonitorReply { id, result }
        }
    }
}
