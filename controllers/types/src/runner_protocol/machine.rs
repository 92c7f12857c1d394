//! What a VM is made of, and what a host offers to one: both sides of the comparison in [`super::facts`].

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Revision of the devices that this release gives to new VMs. In revision 1 the features of the network device do not
/// depend on the host: not on its kernel, and not on whether packets pass through the kernel (`vhost`). Runners up to
/// 0.2.0 report none, which is 0.
pub const DEVICES: u32 = 1;

/// What the VM is made of, as its runner reports it and a migration target receives it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineInfo {
    /// `kvm` or `tcg`.
    pub accelerator: String,
    /// Why it is not the requested one; empty if it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub accelerator_note: String,
    /// Why the root disk does not have the requested size; empty if it has.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub root_size_note: String,
    /// Versioned machine type, such as `pc-q35-7.2`.
    pub machine_type: String,
    /// CPU model, such as `host`, `max` or `EPYC-v1`.
    pub cpu_model: String,
    /// Manufacturer that the guest's CPU names, such as `GenuineIntel`; empty if it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cpu_vendor: String,
    /// Features of the guest's CPU by QEMU's names; empty if they are not known.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub cpu_features: BTreeSet<String>,
    /// Version of QEMU, such as `7.2.22`.
    pub qemu_version: String,
    /// `tap` or `user`. Runners up to 0.2.0 report `tap, vhost` if packets pass through the kernel, and as targets they
    /// accept only their own mode without that addition.
    pub network: String,
    /// Packets pass between the guest and the tap device in the kernel.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub vhost: bool,
    /// Revision of the devices, see [`DEVICES`].
    #[serde(skip_serializing_if = "is_zero")]
    pub devices: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl MachineInfo {
    /// `tap` or `user`, without the addition of older runners.
    #[must_use]
    pub fn network_mode(&self) -> &str {
        self.network.split_once(',').map_or(self.network.as_str(), |(mode, _)| mode)
    }

    /// Whether packets pass through the kernel, in the words of any release.
    #[must_use]
    pub fn has_vhost(&self) -> bool {
        self.vhost || self.network.contains("vhost")
    }

    /// For people: `tap`, `tap, vhost` or `user`.
    #[must_use]
    pub fn network_text(&self) -> String {
        let vhost = if self.has_vhost() { ", vhost" } else { "" };
        format!("{}{vhost}", self.network_mode())
    }
}

/// What a host offers to a VM. Missing facts are unknown, and nothing is refused because of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostFacts {
    /// The best accelerator of the host, `kvm` or `tcg`; emulation is always possible.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub accelerator: String,
    /// Version of the QEMU that runs its VMs, such as `7.2.22`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub qemu_version: String,
    /// How guests are connected: `tap` or `user`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub network: String,
    /// Manufacturer that a guest's CPU names with that accelerator.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cpu_vendor: String,
    /// Features that a guest's CPU can have with that accelerator, by QEMU's names.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub cpu_features: BTreeSet<String>,
    /// Latest revision of devices that its runners make, see [`DEVICES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_all_releases_are_read() {
        let of = |json: &str| serde_json::from_str::<MachineInfo>(json).unwrap();
        for (json, mode, vhost, text) in [
            (r#"{"network":"tap, vhost"}"#, "tap", true, "tap, vhost"),
            (r#"{"network":"tap"}"#, "tap", false, "tap"),
            (r#"{"network":"user"}"#, "user", false, "user"),
            (r#"{"network":"tap","vhost":true}"#, "tap", true, "tap, vhost"),
            ("{}", "", false, ""),
        ] {
            let info = of(json);
            assert_eq!((info.network_mode(), info.has_vhost()), (mode, vhost), "{json}");
            assert_eq!(info.network_text(), text, "{json}");
        }
    }

    #[test]
    fn what_is_new_is_not_in_the_way_of_older_releases() {
        let info = MachineInfo { network: "tap".into(), ..MachineInfo::default() };
        let text = serde_json::to_string(&info).unwrap();
        let old = r#"{"accelerator":"","machineType":"","cpuModel":"","qemuVersion":"","network":"tap"}"#;
        assert_eq!(text, old);
    }
}
