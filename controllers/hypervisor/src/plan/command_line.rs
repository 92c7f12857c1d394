//! Arguments of the guest's kernel.

use std::net::Ipv4Addr;

use super::{Architecture, CpuPlan};
use crate::accelerator::Accelerator;

/// 1 MiB for devices that cannot address all memory: a VM has none. Linux takes 64 MiB for them, even of a guest with 128 MiB, when memory
/// may be added above 4 GiB.
const BOUNCE_BUFFERS: &str = "swiotlb=512";

/// Where memory that is added goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnlinePolicy {
    /// To the movable zone as long as that is at most so many per cent of the kernel's zones, so that a small machine
    /// that grows large still has room for the kernel's own data. Movable memory can be taken away again.
    AutoMovable {
        /// Per cent, such as `401`.
        ratio: String,
    },
    /// All to the movable zone: all of it can be taken away again, and none holds the kernel's own data.
    Movable,
}

/// Address of the second interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlayAddress {
    pub address: Ipv4Addr,
    pub mask: Ipv4Addr,
    /// Name of the pod, which the kernel takes as host name of that interface.
    pub pod: String,
}

/// What the arguments of a guest's kernel are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelArguments {
    pub architecture: Architecture,
    /// What runs its code.
    pub accelerator: Accelerator,
    pub hostname: String,
    pub cpu: CpuPlan,
    /// Zone of memory that is added.
    pub online_policy: OnlinePolicy,
    /// Address of the second interface.
    pub overlay: Option<OverlayAddress>,
    /// Frequency of the counter that an emulated guest takes its time from, in kHz, where it can be determined; see
    /// [`emulated_tsc_khz`](crate::accelerator::emulated_tsc_khz).
    pub tsc_khz: Option<u32>,
    /// What the user adds, last, so that it wins.
    pub append: String,
}

impl KernelArguments {
    /// The text. Words of ours come first; for most of them the kernel takes the last one it reads.
    #[must_use]
    pub fn render(&self) -> String {
        let mut words: Vec<String> =
            ["panic=-1", "init=/neonvm/bin/init", "loglevel=6", "root=/dev/vda", "rw", BOUNCE_BUFFERS]
                .map(str::to_owned)
                .into();
        match &self.online_policy {
            OnlinePolicy::AutoMovable { ratio } => {
                words.push("memhp_default_state=online".to_owned());
                words.push("memory_hotplug.online_policy=auto-movable".to_owned());
                words.push(format!("memory_hotplug.auto_movable_ratio={ratio}"));
            }
            OnlinePolicy::Movable => words.push("memhp_default_state=online_movable".to_owned()),
        }
        if self.accelerator == Accelerator::Tcg {
            words.push(emulated(self.architecture, self.tsc_khz));
        }
        if let Some(OverlayAddress { address, mask, pod }) = &self.overlay {
            words.push(format!("ip={address}:::{mask}:{pod}:eth1:off"));
        }
        words.push(format!("hostname={}", self.hostname));
        words.extend(self.cpu.kernel_words(self.architecture, self.accelerator));
        if self.architecture == Architecture::Arm64 {
            words.push("acpi=on".to_owned());
        }
        words.push(format!("console={}", self.architecture.console()));
        let append = self.append.trim();
        if !append.is_empty() {
            words.push(append.to_owned());
        }
        words.join(" ")
    }
}

/// Arguments for a guest on an emulated processor. Measuring the counter takes long and fails on a busy host, and so
/// does trying whether timers interrupt, after which the kernel panics. Mitigations defend against other guests of a
/// CPU that is not there. Kernels of distributions clear memory whenever it is allocated, also that which is only
/// allocated to be given back: 5 s for each GiB, in which nothing else runs.
#[must_use]
pub fn emulated(architecture: Architecture, tsc_khz: Option<u32>) -> String {
    let mut words = Vec::new();
    if architecture == Architecture::Amd64 {
        words.extend(["tsc=reliable".to_owned(), "no_timer_check".to_owned()]);
        words.extend(tsc_khz.map(|khz| format!("tsc_early_khz={khz}")));
    }
    words.extend(
        ["lpj=10000000", "mitigations=off", "random.trust_cpu=on", "init_on_alloc=0"].map(str::to_owned),
    );
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::CpuMode;

    fn arguments() -> KernelArguments {
        KernelArguments {
            architecture: Architecture::Amd64,
            accelerator: Accelerator::Kvm,
            hostname: "vm-a".into(),
            cpu: CpuPlan { mode: CpuMode::Qmp, boot: 1, max: 4 },
            online_policy: OnlinePolicy::AutoMovable { ratio: "401".into() },
            overlay: None,
            tsc_khz: Some(2_600_000),
            append: String::new(),
        }
    }

    #[test]
    fn as_older_runners_write_them() {
        assert_eq!(
            arguments().render(),
            "panic=-1 init=/neonvm/bin/init loglevel=6 root=/dev/vda rw swiotlb=512 memhp_default_state=online \
             memory_hotplug.online_policy=auto-movable memory_hotplug.auto_movable_ratio=401 hostname=vm-a console=ttyS0"
        );
    }

    #[test]
    fn with_everything() {
        let all = KernelArguments {
            accelerator: Accelerator::Tcg,
            cpu: CpuPlan { mode: CpuMode::Sysfs, boot: 2, max: 4 },
            online_policy: OnlinePolicy::Movable,
            overlay: Some(OverlayAddress {
                address: Ipv4Addr::new(10, 100, 0, 7),
                mask: Ipv4Addr::new(255, 255, 0, 0),
                pod: "a-x1".into(),
            }),
            append: " debug loglevel=7 ".into(),
            ..arguments()
        };
        assert_eq!(
            all.render(),
            "panic=-1 init=/neonvm/bin/init loglevel=6 root=/dev/vda rw swiotlb=512 memhp_default_state=online_movable tsc=reliable \
             no_timer_check tsc_early_khz=2600000 lpj=10000000 mitigations=off random.trust_cpu=on init_on_alloc=0 \
             ip=10.100.0.7:::255.255.0.0:a-x1:eth1:off hostname=vm-a maxcpus=2 console=ttyS0 debug loglevel=7"
        );
    }

    #[test]
    fn cpus_to_come_are_listed_where_the_kernel_would_not_take_them() {
        let emulated = KernelArguments { accelerator: Accelerator::Tcg, ..arguments() };
        assert!(emulated.render().contains(" hostname=vm-a maxcpus=1 acpi_apic_instance=2 console="));
        assert!(!arguments().render().contains("cpus="), "Linux knows KVM");
        let arm = KernelArguments { architecture: Architecture::Arm64, ..emulated };
        assert!(!arm.render().contains("cpus="), "its board has no such table");
    }

    #[test]
    fn arm64() {
        let arm = KernelArguments { architecture: Architecture::Arm64, ..arguments() };
        assert!(arm.render().ends_with("hostname=vm-a acpi=on console=ttyAMA0"));
        let emulated = KernelArguments { accelerator: Accelerator::Tcg, ..arm };
        assert!(!emulated.render().contains("tsc"), "it has another counter, which reports its frequency");
    }
}
