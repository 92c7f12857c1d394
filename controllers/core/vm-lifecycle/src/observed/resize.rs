//! Why a node does not resize a pod: the texts of kubelets from 1.33 to 1.36 and of the API server's admission, and what each calls
//! for.
//!
//! A kubelet knows two reasons, `Infeasible` and `Deferred`, and gives the second to everything that is not the first. So only its
//! message separates a full node from one whose devices are away. It looks at a deferred resize again when the resources of some pod
//! change, when a pod leaves, and every three minutes; not when devices come back.

use neonvm_types::Timestamp;

/// A resize that a kubelet does not do, as the pod's status has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResizeDenial {
    pub obstacle: Obstacle,
    /// The kubelet's own words.
    pub message: String,
    /// Since when it is denied.
    pub since: Option<Timestamp>,
}

/// What keeps a pod from its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Too little is free on the node now.
    NoRoom,
    /// The node could not give as much if it were empty.
    TooLarge,
    /// The node does not offer the pod's devices: their plugin is being replaced, or is gone.
    DevicesAway,
    /// A setting of the node forbids it.
    Policy(NodePolicy),
    /// The text is not in the table.
    Unknown,
}

/// A setting of a kubelet that forbids resizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePolicy {
    CpuManager,
    MemoryManager,
    TopologyManager,
    Swap,
    FeatureGate,
}

/// Parts of messages. The first that a message has decides.
const TABLE: [(&str, Obstacle); 18] = [
    // Until 1.33 `alongside CPU Manager static policy`, later `alongside CPU Manager policy "static"`.
    ("alongside CPU Manager", Obstacle::Policy(NodePolicy::CpuManager)),
    ("SMT Alignment Error", Obstacle::Policy(NodePolicy::CpuManager)),
    ("not enough cpus available", Obstacle::Policy(NodePolicy::CpuManager)),
    ("[cpumanager]", Obstacle::Policy(NodePolicy::CpuManager)),
    ("alongside Memory Manager", Obstacle::Policy(NodePolicy::MemoryManager)),
    ("[memorymanager]", Obstacle::Policy(NodePolicy::MemoryManager)),
    ("cannot be allocated with Topology locality", Obstacle::Policy(NodePolicy::TopologyManager)),
    ("resize of containers with swap", Obstacle::Policy(NodePolicy::Swap)),
    ("InPlacePodVerticalScaling is disabled", Obstacle::Policy(NodePolicy::FeatureGate)),
    // The device manager's words, whatever wraps them, and what kubelets write around all other failures to allocate.
    ("cannot allocate unhealthy devices", Obstacle::DevicesAway),
    ("cannot allocate unregistered device", Obstacle::DevicesAway),
    ("requested number of devices unavailable", Obstacle::DevicesAway),
    ("Allocate failed due to", Obstacle::DevicesAway),
    ("Update plugin resources failed", Obstacle::DevicesAway),
    ("UnexpectedAdmissionError", Obstacle::DevicesAway),
    // Kubelets until 1.35, and the API server's admission from 1.36 on.
    (CAPACITY, Obstacle::TooLarge),
    (ALLOCATABLE, Obstacle::TooLarge),
    (RESOURCE, Obstacle::NoRoom),
];

const CAPACITY: &str = "Node didn't have enough capacity: ";
const ALLOCATABLE: &str = "node didn't have enough allocatable resources: ";
const RESOURCE: &str = "Node didn't have enough resource: ";

impl Obstacle {
    /// Reads the message of a kubelet or of the API server.
    #[must_use]
    pub fn from_message(message: &str) -> Self {
        let found = TABLE.iter().find(|(part, _)| message.contains(part)).map(|(_, obstacle)| *obstacle);
        match (found, message.split_once(RESOURCE)) {
            (Some(Self::NoRoom), Some((_, lacks))) => insufficient(lacks),
            (found, _) => found.unwrap_or(Self::Unknown),
        }
    }

    /// Reason of the condition `Scaled`.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NoRoom => "ResizeDeferred",
            Self::TooLarge => "ResizeInfeasible",
            // Agents set the size back for reasons that begin with `Resize`; this one passes while the request stands.
            Self::DevicesAway => "DevicesUnavailable",
            Self::Policy(_) => "ResizeForbidden",
            Self::Unknown => "ResizeDenied",
        }
    }

    /// What to do about it; empty if that is not known.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::NoRoom => "make room on the node, or migrate the VM",
            Self::TooLarge => "migrate the VM to a larger node",
            Self::DevicesAway => "requested again until the node service (DaemonSet neonvm-node) is back",
            Self::Policy(NodePolicy::CpuManager) => {
                "set cpuManagerPolicy of the node's kubelet to none, or migrate the VM to a node that has it"
            }
            Self::Policy(NodePolicy::MemoryManager) => {
                "set memoryManagerPolicy of the node's kubelet to None, or migrate the VM to a node that has it"
            }
            Self::Policy(NodePolicy::TopologyManager) => {
                "set topologyManagerPolicy of the node's kubelet to none or best-effort, or migrate the VM to a node that has it"
            }
            Self::Policy(NodePolicy::Swap) => {
                "set memorySwap.swapBehavior of the node's kubelet to NoSwap, or migrate the VM to a node that has it"
            }
            Self::Policy(NodePolicy::FeatureGate) => {
                "enable the feature gate InPlacePodVerticalScaling of the node's kubelet"
            }
            Self::Unknown => "",
        }
    }
}

/// Of `cpu, requested: 3000, used: 1500, capacity: 4000`. Resources with a domain are devices.
fn insufficient(lacks: &str) -> Obstacle {
    let resource = lacks.split([',', ' ']).next().unwrap_or_default();
    let amount = |name: &str| {
        let (_, rest) = lacks.split_once(name)?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<i64>().ok()
    };
    let beyond = amount("requested: ").zip(amount("capacity: "));
    if resource.contains('/') {
        Obstacle::DevicesAway
    } else if beyond.is_some_and(|(requested, capacity)| requested > capacity) {
        Obstacle::TooLarge
    } else {
        Obstacle::NoRoom
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: Obstacle = Obstacle::Policy(NodePolicy::CpuManager);
    const MEMORY: Obstacle = Obstacle::Policy(NodePolicy::MemoryManager);

    /// Messages as the source of each Kubernetes version formats them.
    const MESSAGES: [(&str, &str, Obstacle); 22] = [
        ("1.33", "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy", CPU),
        ("1.33", "Resize is infeasible for Guaranteed Pods alongside Memory Manager static policy", MEMORY),
        (
            "1.34-1.36",
            r#"Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static""#,
            CPU,
        ),
        (
            "1.34-1.36",
            r#"Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static""#,
            MEMORY,
        ),
        (
            "1.33-1.36",
            "In-place resize of containers with swap is not supported.",
            Obstacle::Policy(NodePolicy::Swap),
        ),
        ("1.33-1.36", "InPlacePodVerticalScaling is disabled", Obstacle::Policy(NodePolicy::FeatureGate)),
        (
            "1.33-1.36",
            "Resources cannot be allocated with Topology locality",
            Obstacle::Policy(NodePolicy::TopologyManager),
        ),
        (
            "1.36",
            "Pod Scope Resources cannot be allocated with Topology locality",
            Obstacle::Policy(NodePolicy::TopologyManager),
        ),
        ("1.33-1.36", "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2", CPU),
        (
            "1.33-1.36",
            "Allocate failed due to not enough cpus available to satisfy request: requested=4, available=2, which is unexpected",
            CPU,
        ),
        (
            "1.33-1.36",
            "Allocate failed due to [memorymanager] failed to find the default preferred hint, which is unexpected",
            MEMORY,
        ),
        (
            "1.33-1.36",
            "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices neonvm/kvm, which is unexpected",
            Obstacle::DevicesAway,
        ),
        (
            "1.33-1.36",
            "Allocate failed due to previously allocated devices are no longer healthy; cannot allocate unhealthy devices neonvm/tun, which is unexpected",
            Obstacle::DevicesAway,
        ),
        (
            "1.33-1.36",
            "Allocate failed due to cannot allocate unregistered device neonvm/kvm, which is unexpected",
            Obstacle::DevicesAway,
        ),
        (
            "1.33-1.36",
            "Allocate failed due to rpc error: code = Unavailable desc = error reading from server: EOF, which is unexpected",
            Obstacle::DevicesAway,
        ),
        (
            "1.33-1.36",
            "Node didn't have enough resource: neonvm/kvm, requested: 1, used: 0, capacity: 0",
            Obstacle::DevicesAway,
        ),
        (
            "1.33-1.35",
            "Node didn't have enough capacity: cpu, requested: 2500, capacity: 1930",
            Obstacle::TooLarge,
        ),
        (
            "1.36",
            "Node didn't have enough resource: memory, requested: 9663676416, used: 0, capacity: 8589934592",
            Obstacle::TooLarge,
        ),
        (
            "1.36",
            "pods \"db-1\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 4100, allocatable: 4000",
            Obstacle::TooLarge,
        ),
        (
            "1.33-1.36",
            "Node didn't have enough resource: cpu, requested: 3000, used: 1500, capacity: 4000",
            Obstacle::NoRoom,
        ),
        ("1.33-1.36", "Pod was rejected as the node is shutting down.", Obstacle::Unknown),
        ("1.36", "Pod requires node features that are not available: ContainerUlimits", Obstacle::Unknown),
    ];

    #[test]
    fn each_text_has_its_obstacle() {
        for (version, message, obstacle) in MESSAGES {
            assert_eq!(Obstacle::from_message(message), obstacle, "{version}: {message}");
            assert_eq!(obstacle == Obstacle::Unknown, obstacle.remedy().is_empty(), "{message}");
        }
    }

    #[test]
    fn texts_that_are_cut_or_empty_are_read() {
        for (message, obstacle) in [
            ("", Obstacle::Unknown),
            ("Node didn't have enough resource: ", Obstacle::NoRoom),
            ("Node didn't have enough resource: cpu, requested: x, capacity: 1", Obstacle::NoRoom),
            ("pods \"db-1\" is forbidden: exceeded quota: small", Obstacle::Unknown),
        ] {
            assert_eq!(Obstacle::from_message(message), obstacle, "{message}");
        }
    }
}
