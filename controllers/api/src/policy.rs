//! What a VM's author may request that has power over the node or over other VMs. Nothing of it is allowed unless an
//! administrator does so: for all namespaces by a flag of the vm-controller, for one namespace by labels on it, which
//! win.
//!
//! The label of a power is `allow.vm.neon.tech/<power>`; the value `true` allows, every other value forbids. Access
//! rules decide which users may label namespaces; the roles that Kubernetes gives to authors of workloads (`admin`,
//! `edit`) do not hold that right.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::names::TRUE;
use crate::overlay::INTERFACE;
use crate::runner_pod::CONFIG_VOLUME;
use crate::{FieldError, VirtualMachineMigrationSpec, VirtualMachineSpec};

/// Prefix of the labels.
pub const LABEL_PREFIX: &str = "allow.vm.neon.tech/";
/// The scheduler of an installation, if it is not named otherwise.
pub const SCHEDULER: &str = "autoscale-scheduler";

/// A part of the spec that needs permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Power {
    /// `runnerImage`: a program of the author's in the place of the runner, with the runner's capabilities.
    RunnerImage,
    /// `extraInitContainers`: containers of the author's in the runner's pod.
    InitContainers,
    /// `initScript`: commands of the author's in the runner's container.
    InitScript,
    /// `overcommit`: the VM counts less on its node than it uses.
    Overcommit,
    /// `schedulerName`: a scheduler that does not keep the node's accounts.
    Scheduler,
    /// `serviceAccountName`: an identity other than the namespace's default one.
    ServiceAccount,
    /// No field: guests reach the metadata services of a cloud and the kubelet of their node.
    NodeAccess,
    /// `guest.rootDisk.image` and `guest.kernelImage` that name a file of the node (`file://PATH`), where nodes take such names: the
    /// local kubelet does, below the directories that its administrator names.
    NodeFiles,
    /// `priority` of migrations above 0: they go before others that wait.
    MigrationPriority,
    /// `extraNetwork.interface` and `.multusNetwork`: networks other than the overlay.
    Network,
}

impl Power {
    /// All powers.
    pub const ALL: [Self; 10] = [
        Self::RunnerImage,
        Self::InitContainers,
        Self::InitScript,
        Self::Overcommit,
        Self::Scheduler,
        Self::ServiceAccount,
        Self::Network,
        Self::NodeAccess,
        Self::NodeFiles,
        Self::MigrationPriority,
    ];

    /// Name in labels and flags.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RunnerImage => "runner-image",
            Self::InitContainers => "init-containers",
            Self::InitScript => "init-script",
            Self::Overcommit => "overcommit",
            Self::Scheduler => "scheduler",
            Self::ServiceAccount => "service-account",
            Self::Network => "network",
            Self::NodeAccess => "node-access",
            Self::NodeFiles => "node-files",
            Self::MigrationPriority => "migration-priority",
        }
    }

    /// The label of namespaces that allows or forbids it.
    #[must_use]
    pub fn label(self) -> String {
        format!("{LABEL_PREFIX}{}", self.name())
    }
}

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no power.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is none of: runner-image, init-containers, init-script, overcommit, scheduler, service-account, network, node-access, node-files, migration-priority"
)]
pub struct UnknownPower(String);

impl FromStr for Power {
    type Err = UnknownPower;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|power| power.name() == text).ok_or_else(|| UnknownPower(text.to_owned()))
    }
}

/// What is allowed, and what needs no permission because the installation itself offers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Allowed powers.
    pub allowed: BTreeSet<Power>,
    /// Scheduler that VMs may name.
    pub scheduler: String,
    /// Network attachments that VMs may name, as `<namespace>/<name>`.
    pub attachments: BTreeSet<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self { allowed: BTreeSet::new(), scheduler: SCHEDULER.to_owned(), attachments: BTreeSet::new() }
    }
}

impl Policy {
    /// The policy of a namespace with these labels.
    #[must_use]
    pub fn in_namespace(&self, labels: &BTreeMap<String, String>) -> Self {
        let mut own = self.clone();
        for power in Power::ALL {
            match labels.get(&power.label()) {
                Some(value) if value == TRUE => {
                    own.allowed.insert(power);
                }
                Some(_) => {
                    own.allowed.remove(&power);
                }
                None => {}
            }
        }
        own
    }

    /// Whether a power is allowed.
    #[must_use]
    pub fn allows(&self, power: Power) -> bool {
        self.allowed.contains(&power)
    }

    /// Each part of a spec that is refused, with the way to allow it.
    #[must_use]
    pub fn refusals(&self, spec: &VirtualMachineSpec) -> Vec<FieldError> {
        let used = self.used(spec).into_iter().filter(|(power, _)| !self.allows(*power));
        let mut all: Vec<FieldError> = used.map(|(power, path)| refusal(power, path)).collect();
        all.extend(privileges(spec));
        all
    }

    /// The same of a migration.
    #[must_use]
    pub fn refusals_of_migration(&self, spec: &VirtualMachineMigrationSpec) -> Vec<FieldError> {
        let used = spec.priority > 0 && !self.allows(Power::MigrationPriority);
        used.then(|| refusal(Power::MigrationPriority, "spec.priority")).into_iter().collect()
    }

    /// The powers that a spec uses, each with its field.
    fn used(&self, spec: &VirtualMachineSpec) -> Vec<(Power, &'static str)> {
        let network = spec.extra_network.as_ref().filter(|network| network.enable);
        let interface = network.map_or("", |network| network.interface.as_str());
        let attachment = network.map_or("", |network| network.multus_network.as_str());
        let guest = &spec.guest;
        let is_file = |image: &str| image.trim_start().to_ascii_lowercase().starts_with("file:");
        let parts = [
            (Power::NodeFiles, "spec.guest.rootDisk.image", is_file(&guest.root_disk.image)),
            (Power::NodeFiles, "spec.guest.kernelImage", guest.kernel_image.as_deref().is_some_and(is_file)),
            (Power::RunnerImage, "spec.runnerImage", spec.runner_image.is_some()),
            (Power::InitContainers, "spec.extraInitContainers", !spec.extra_init_containers.is_empty()),
            (Power::InitScript, "spec.initScript", !spec.init_script.is_empty()),
            (Power::Overcommit, "spec.overcommit", spec.overcommit.is_some()),
            (
                Power::Scheduler,
                "spec.schedulerName",
                !spec.scheduler_name.is_empty() && spec.scheduler_name != self.scheduler,
            ),
            (
                Power::ServiceAccount,
                "spec.serviceAccountName",
                !matches!(spec.service_account_name.as_str(), "" | "default"),
            ),
            (Power::Network, "spec.extraNetwork.interface", !interface.is_empty() && interface != INTERFACE),
            (
                Power::Network,
                "spec.extraNetwork.multusNetwork",
                !attachment.is_empty() && !self.attachments.contains(attachment),
            ),
        ];
        parts.into_iter().filter(|(_, _, used)| *used).map(|(power, path, _)| (power, path)).collect()
    }
}

fn refusal(power: Power, path: &str) -> FieldError {
    FieldError {
        path: path.to_owned(),
        message: format!(
            "the policy of this namespace does not allow {power}; an administrator can allow it with the label {}=true on the namespace",
            power.label()
        ),
    }
}

/// What no policy allows: containers of the author's are never privileged and never see the runner's certificate.
fn privileges(spec: &VirtualMachineSpec) -> Vec<FieldError> {
    let mut all = Vec::new();
    for (index, container) in spec.extra_init_containers.iter().enumerate() {
        let mut refuse = |field: &str, message: &str| {
            let path = format!("spec.extraInitContainers[{index}].{field}");
            all.push(FieldError { path, message: message.to_owned() });
        };
        let context = container.security_context.clone().unwrap_or_default();
        if context.privileged == Some(true) {
            refuse(
                "securityContext.privileged",
                "must not be true: containers of a VM's author are not privileged",
            );
        }
        if context.allow_privilege_escalation == Some(true) {
            refuse("securityContext.allowPrivilegeEscalation", "must not be true");
        }
        if context.capabilities.and_then(|capabilities| capabilities.add).is_some_and(|add| !add.is_empty()) {
            refuse(
                "securityContext.capabilities.add",
                "must be empty: containers of a VM's author have no capabilities",
            );
        }
        if context.proc_mount.is_some_and(|mount| mount != "Default") {
            refuse("securityContext.procMount", "must be Default");
        }
        if container.volume_mounts.iter().flatten().any(|mount| mount.name == CONFIG_VOLUME) {
            refuse("volumeMounts", "must not mount runner-config: it holds the runner's private key");
        }
        if container.ports.iter().flatten().any(|port| port.host_port.is_some_and(|port| port != 0)) {
            refuse("ports", "must not have a hostPort");
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(part: &Value) -> VirtualMachineSpec {
        let mut spec = json!({"guest": {"cpus": {"min": 1, "max": 1, "use": 1},
            "memorySlots": {"min": 1, "max": 1, "use": 1}, "rootDisk": {"image": "i"}}});
        spec.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    fn guest(image: &str, field: &str, value: &Value) -> Value {
        let mut guest = json!({"cpus": {"min": 1, "max": 1, "use": 1}, "memorySlots": {"min": 1, "max": 1, "use": 1},
            "rootDisk": {"image": image}});
        guest[field] = value.clone();
        json!({ "guest": guest })
    }

    fn paths(refusals: &[FieldError]) -> Vec<&str> {
        refusals.iter().map(|refusal| refusal.path.as_str()).collect()
    }

    #[test]
    fn each_power_is_refused_until_it_is_allowed() {
        let all = [
            (Power::RunnerImage, "spec.runnerImage", json!({"runnerImage": "evil"})),
            (
                Power::InitContainers,
                "spec.extraInitContainers",
                json!({"extraInitContainers": [{"name": "a"}]}),
            ),
            (Power::InitScript, "spec.initScript", json!({"initScript": "id"})),
            (Power::Overcommit, "spec.overcommit", json!({"overcommit": {"cpu": "1000"}})),
            (Power::Scheduler, "spec.schedulerName", json!({"schedulerName": "default-scheduler"})),
            (Power::ServiceAccount, "spec.serviceAccountName", json!({"serviceAccountName": "root"})),
            (
                Power::Network,
                "spec.extraNetwork.interface",
                json!({"extraNetwork": {"enable": true, "interface": "eth0"}}),
            ),
            (
                Power::Network,
                "spec.extraNetwork.multusNetwork",
                json!({"extraNetwork": {"enable": true, "interface": "net1", "multusNetwork": "kube-system/host"}}),
            ),
            (
                Power::NodeFiles,
                "spec.guest.rootDisk.image",
                guest("i", "rootDisk", &json!({"image": "file:///data/a"})),
            ),
            (
                Power::NodeFiles,
                "spec.guest.rootDisk.image",
                guest("i", "rootDisk", &json!({"image": "FILE:/data/a"})),
            ),
            (Power::NodeFiles, "spec.guest.kernelImage", guest("i", "kernelImage", &json!("file:///data/a"))),
        ];
        for (power, path, part) in all {
            let none = Policy::default();
            let refusals = none.refusals(&spec(&part));
            assert_eq!(paths(&refusals), [path]);
            assert!(refusals[0].message.contains(&format!("{}=true", power.label())), "{refusals:?}");
            let labels = BTreeMap::from([(power.label(), "true".to_owned())]);
            assert_eq!(none.in_namespace(&labels).refusals(&spec(&part)), [], "{path}");
            // A label wins over what is allowed everywhere.
            let everywhere = Policy { allowed: Power::ALL.into(), ..Policy::default() };
            assert_eq!(everywhere.refusals(&spec(&part)), [], "{path}");
            let labels = BTreeMap::from([(power.label(), "yes".to_owned())]);
            assert_eq!(paths(&everywhere.in_namespace(&labels).refusals(&spec(&part))), [path]);
        }
    }

    #[test]
    fn what_the_installation_offers_needs_no_permission() {
        let policy = Policy { attachments: ["ns/overlay".to_owned()].into(), ..Policy::default() };
        let plain = json!({"schedulerName": SCHEDULER, "serviceAccountName": "default",
            "extraNetwork": {"enable": true, "interface": "net1", "multusNetwork": "ns/overlay"}});
        assert_eq!(policy.refusals(&spec(&plain)), []);
        let off = json!({"extraNetwork": {"enable": false, "interface": "eth0"}});
        assert_eq!(policy.refusals(&spec(&off)), []);
    }

    #[test]
    fn no_policy_makes_an_authors_container_privileged() {
        let policy = Policy { allowed: Power::ALL.into(), ..Policy::default() };
        for (field, container) in [
            ("securityContext.privileged", json!({"securityContext": {"privileged": true}})),
            (
                "securityContext.allowPrivilegeEscalation",
                json!({"securityContext": {"allowPrivilegeEscalation": true}}),
            ),
            (
                "securityContext.capabilities.add",
                json!({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}),
            ),
            ("securityContext.procMount", json!({"securityContext": {"procMount": "Unmasked"}})),
            ("volumeMounts", json!({"volumeMounts": [{"name": "runner-config", "mountPath": "/x"}]})),
            ("ports", json!({"ports": [{"containerPort": 1, "hostPort": 1}]})),
        ] {
            let mut container = container;
            container["name"] = json!("a");
            let refusals = policy.refusals(&spec(&json!({"extraInitContainers": [container]})));
            assert_eq!(paths(&refusals), [format!("spec.extraInitContainers[0].{field}")]);
        }
    }

    #[test]
    fn powers_have_names() {
        for power in Power::ALL {
            assert_eq!(power.name().parse(), Ok(power));
        }
        assert!("root".parse::<Power>().unwrap_err().to_string().contains("init-script"));
    }
}
