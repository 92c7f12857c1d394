//! What a node offers, from what it has.

use std::path::{Path, PathBuf};

/// Units of each resource: VMs that can have the device at the same time. More than a kubelet runs pods.
pub const SLOTS: usize = 1000;

/// How VMs get `/dev/kvm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kvm {
    /// Every node offers it, so that pods fit on all of them; on a node without the device they get nothing, and the guest's
    /// code is emulated.
    #[default]
    Auto,
    /// Only nodes that have the device offer it.
    Require,
    /// Every node offers it and none gives it: all guests are emulated.
    Never,
}

/// What VMs use of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Device {
    /// Runs the guest's code on the processor.
    Kvm,
    /// The socket of the node service, which makes the guest's network.
    Node,
    /// Makes the interface that connects the guest: for runners of versions before the node service.
    Tun,
    /// Processes packets in the kernel instead of in QEMU.
    VhostNet,
}

impl Device {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Kvm, Self::Node, Self::Tun, Self::VhostNet];

    /// The resource's name, as pods request it.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Self::Kvm => "neonvm/kvm",
            Self::Node => neonvm_types::node_protocol::RESOURCE,
            Self::Tun => "neonvm/tun",
            Self::VhostNet => "neonvm/vhost-net",
        }
    }

    /// The device's file, or the directory of the socket, in a pod.
    #[must_use]
    pub fn path(self) -> &'static Path {
        Path::new(match self {
            Self::Kvm => "/dev/kvm",
            Self::Node => neonvm_types::node_protocol::SOCKET_DIRECTORY,
            Self::Tun => "/dev/net/tun",
            Self::VhostNet => "/dev/vhost-net",
        })
    }

    /// The device without which a node has none of it: networks are made with tap devices.
    #[must_use]
    pub fn needs(self) -> Self {
        if self == Self::Node { Self::Tun } else { self }
    }

    /// Name of the socket in the kubelet's directory, and prefix of the units' names.
    #[must_use]
    pub fn short(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Node => "node",
            Self::Tun => "tun",
            Self::VhostNet => "vhost-net",
        }
    }

    /// The device's file under `root`, where a pod sees the node's `/dev`.
    #[must_use]
    pub fn below(self, root: &Path) -> PathBuf {
        root.join(self.path().strip_prefix("/dev").unwrap_or(self.path()))
    }

    /// What the node offers of it: `present` is whether the file of the device it [needs](Self::needs) is there.
    #[must_use]
    pub fn offer(self, present: bool, kvm: Kvm) -> Offer {
        let given = present && (self != Self::Kvm || kvm != Kvm::Never);
        // A VM runs without these two, only slower. Without an interface it has no network.
        let is_optional = match self {
            Self::Kvm => kvm != Kvm::Require,
            Self::VhostNet => true,
            Self::Node | Self::Tun => false,
        };
        Offer { healthy: given || is_optional, given, open: false }
    }
}

/// What a node offers of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Whether pods that request it are admitted.
    pub healthy: bool,
    /// Whether they get the device's file.
    pub given: bool,
    /// Whether that file is open to every user; of the socket: whether the file for page faults is there as well.
    pub open: bool,
}

/// Name of a unit; numbers start at 0.
#[must_use]
pub fn unit(device: Device, number: usize) -> String {
    format!("{}-{number}", device.short())
}

/// Whether `name` is one of the [`SLOTS`] units of `device`.
#[must_use]
pub fn is_unit(device: Device, name: &str) -> bool {
    let number = name.strip_prefix(device.short()).and_then(|rest| rest.strip_prefix('-'));
    number.and_then(|number| number.parse().ok()).is_some_and(|number| {
        // Written in one way only: not "+1", not "01".
        number < SLOTS && unit(device, number) == name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_offers_what_a_vm_can_use() {
        let offer = |healthy, given| Offer { healthy, given, open: false };
        for (device, present, kvm, expected) in [
            (Device::Kvm, true, Kvm::Auto, offer(true, true)),
            (Device::Kvm, false, Kvm::Auto, offer(true, false)),
            (Device::Kvm, true, Kvm::Never, offer(true, false)),
            (Device::Kvm, true, Kvm::Require, offer(true, true)),
            (Device::Kvm, false, Kvm::Require, offer(false, false)),
            (Device::VhostNet, false, Kvm::Require, offer(true, false)),
            (Device::VhostNet, true, Kvm::Auto, offer(true, true)),
            (Device::Tun, false, Kvm::Auto, offer(false, false)),
            (Device::Tun, true, Kvm::Never, offer(true, true)),
            (Device::Node, true, Kvm::Never, offer(true, true)),
            (Device::Node, false, Kvm::Auto, offer(false, false)),
        ] {
            assert_eq!(device.offer(present, kvm), expected, "{device:?} {present} {kvm:?}");
        }
    }

    #[test]
    fn units_are_named_in_one_way() {
        for device in Device::ALL {
            assert!((0..SLOTS).all(|number| is_unit(device, &unit(device, number))));
        }
        for wrong in ["kvm", "kvm-", "kvm-01", "kvm-+1", "kvm-1000", "tun-1", "kvm--1", "", "kvm-1 "] {
            assert!(!is_unit(Device::Kvm, wrong), "{wrong}");
        }
        // The kubelet refuses names of more than 63 characters.
        assert!(Device::ALL.iter().all(|device| unit(*device, SLOTS - 1).len() <= 63));
    }

    #[test]
    fn files_are_found_where_a_pod_sees_them() {
        assert_eq!(Device::Tun.below(Path::new("/host/dev")), Path::new("/host/dev/net/tun"));
        assert_eq!(Device::Kvm.below(Path::new("/dev")), Path::new("/dev/kvm"));
    }
}
