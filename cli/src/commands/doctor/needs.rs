//! What the product needs of a host: the programs of others that it starts, and devices and files of the kernel. Each is
//! named with the source that needs it, and a test looks there: what nothing needs any more is not asked for.

use std::path::Path;

/// A program of others that the product starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    /// What it does here, after "it".
    pub(super) purpose: &'static str,
    pub(super) necessity: Necessity,
    pub(super) package: Package,
    /// The source that starts it.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test looks there"))]
    pub(super) used_by: &'static str,
}

/// When a local cluster cannot do without a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Necessity {
    /// Never: something else works less well.
    Optional,
    Root,
}

/// The programs, without QEMU, which depends on the architecture.
pub(super) const PROGRAMS: [Program; 6] = [
    Program {
        name: "mkfs.ext4",
        purpose: "creates the file systems of empty disks",
        necessity: Necessity::Optional,
        package: Package::everywhere("e2fsprogs"),
        used_by: "controllers/hypervisor/src/disks/empty.rs",
    },
    Program {
        name: "ip",
        purpose: "configures the network of nodes and pods",
        necessity: Necessity::Root,
        package: Package { debian: "iproute2", fedora: "iproute", suse: "iproute2", arch: "iproute2" },
        used_by: "controllers/local/kubelet/src/network/command.rs",
    },
    Program {
        name: "nft",
        purpose: "gives VMs access to external networks",
        necessity: Necessity::Optional,
        package: Package::everywhere("nftables"),
        used_by: "controllers/local/kubelet/src/network/command.rs",
    },
    Program {
        name: "ssh",
        purpose: "is required by neonctl vm ssh",
        necessity: Necessity::Optional,
        package: SSH,
        used_by: "cli/src/commands/vm/ssh.rs",
    },
    Program {
        name: "scp",
        purpose: "is required by neonctl vm cp",
        necessity: Necessity::Optional,
        package: SSH,
        used_by: "cli/src/commands/vm/cp.rs",
    },
    Program {
        name: "buildah",
        purpose: "is required by neonctl vm build for a Dockerfile (podman and docker serve as well)",
        necessity: Necessity::Optional,
        package: Package::everywhere("buildah"),
        used_by: "vm-builder/src/tool.rs",
    },
];

const SSH: Package =
    Package { debian: "openssh-client", fedora: "openssh-clients", suse: "openssh-clients", arch: "openssh" };

/// A device or file of the kernel that makes VMs faster or gives them a feature.
#[derive(Clone, Copy, Debug)]
pub(super) struct Feature {
    pub(super) name: &'static str,
    /// Its device, file or module, as the source that needs it names it.
    pub(super) word: &'static str,
    pub(super) cost: &'static str,
    pub(super) remedy: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "a test looks there"))]
    pub(super) used_by: &'static str,
}

pub(super) const VHOST_NET: Feature = Feature {
    name: "vhost-net",
    word: "/dev/vhost-net",
    cost: "packets of VMs pass through QEMU, which is slower",
    remedy: "modprobe vhost_net",
    used_by: "controllers/runner/src/network/vhost.rs",
};

pub(super) const USERFAULTFD: Feature = Feature {
    name: "userfaultfd",
    word: "vm.unprivileged_userfaultfd",
    cost: "migrations do not use post-copy, so a guest that writes fast may not converge",
    remedy: "sysctl -w vm.unprivileged_userfaultfd=1",
    used_by: "controllers/hypervisor/src/machine/migration.rs",
};

pub(super) const WIREGUARD: Feature = Feature {
    name: "wireguard",
    word: "wireguard",
    cost: "the overlay network cannot be encrypted",
    remedy: "modprobe wireguard; it is part of Linux since 5.6",
    used_by: "controllers/vxlan-controller/src/wireguard.rs",
};

pub(super) const MEMORY_CONTROLLER: Feature = Feature {
    name: "cgroup memory",
    word: "memory.max",
    cost: "a pod can use more memory than its limit",
    remedy: "have the memory controller enabled; on old kernels with the argument cgroup_enable=memory",
    used_by: "controllers/local/kubelet/src/cgroup.rs",
};

/// QEMU asks for huge pages by itself.
pub(super) const HUGE_PAGES: Feature = Feature {
    name: "huge pages",
    word: "memory-backend-ram",
    cost: "memory of VMs with KVM is slower",
    remedy: "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled",
    used_by: "controllers/hypervisor/src/plan/argv.rs",
};

/// KVM's `host` model passes the processor's virtualisation on.
pub(super) const NESTED: Feature = Feature {
    name: "nested kvm",
    word: "\"host\"",
    cost: "guests cannot run VMs with KVM themselves",
    remedy: "load the module with nested=1: echo 'options kvm_intel nested=1' >/etc/modprobe.d/kvm.conf (kvm_amd on AMD)",
    used_by: "controllers/hypervisor/src/accelerator.rs",
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Debian,
    /// Fedora, RHEL and its rebuilds.
    Fedora,
    Suse,
    Arch,
    Other,
}

/// Identifiers in `os-release`, as distributions use them in `ID` or `ID_LIKE`.
const IDENTIFIERS: [(&str, Family); 9] = [
    ("debian", Family::Debian),
    ("ubuntu", Family::Debian),
    ("fedora", Family::Fedora),
    ("rhel", Family::Fedora),
    ("centos", Family::Fedora),
    ("suse", Family::Suse),
    ("opensuse", Family::Suse),
    ("arch", Family::Arch),
    ("archlinux", Family::Arch),
];

#[derive(Clone, Copy, Debug)]
pub(super) struct Package {
    pub(super) debian: &'static str,
    pub(super) fedora: &'static str,
    pub(super) suse: &'static str,
    pub(super) arch: &'static str,
}

impl Package {
    /// A package that has the same name everywhere.
    pub(super) const fn everywhere(name: &'static str) -> Self {
        Self { debian: name, fedora: name, suse: name, arch: name }
    }
}

impl Family {
    pub(super) fn of_host() -> Self {
        let files = ["/etc/os-release", "/usr/lib/os-release"].map(Path::new);
        let text = files.iter().find_map(|file| std::fs::read_to_string(file).ok());
        Self::of(&text.unwrap_or_default())
    }

    /// That of an `os-release`: by `ID`, else by the first known word of `ID_LIKE`.
    fn of(text: &str) -> Self {
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='));
            line.unwrap_or_default().trim_matches(['"', '\'']).to_ascii_lowercase()
        };
        let known = |word: &str| {
            // openSUSE has `opensuse-leap` and others.
            let word = word.split('-').next().unwrap_or_default();
            IDENTIFIERS.iter().find_map(|(id, family)| (*id == word).then_some(*family))
        };
        let (id, like) = (value("ID"), value("ID_LIKE"));
        std::iter::once(id.as_str()).chain(like.split_whitespace()).find_map(known).unwrap_or(Self::Other)
    }

    pub(super) fn install(self, package: &Package) -> String {
        match self {
            Self::Debian => format!("apt-get install {}", package.debian),
            Self::Fedora => format!("dnf install {}", package.fedora),
            Self::Suse => format!("zypper install {}", package.suse),
            Self::Arch => format!("pacman -S {}", package.arch),
            Self::Other => format!("install the package that Debian calls {}", package.debian),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source of this repository without its comments and tests.
    fn source(path: &str) -> String {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"));
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_is_asked_for_is_needed_by_the_code_that_is_named() {
        for program in PROGRAMS {
            let (name, path) = (program.name, program.used_by);
            assert!(source(path).contains(&format!("\"{name}\"")), "{path} does not start {name}");
        }
        for feature in [VHOST_NET, USERFAULTFD, WIREGUARD, MEMORY_CONTROLLER, HUGE_PAGES, NESTED] {
            let (word, path) = (feature.word, feature.used_by);
            assert!(source(path).contains(word), "{path} does not need {word}");
        }
    }

    #[test]
    fn distributions_are_known_by_their_own_name_or_by_that_of_their_parent() {
        for (text, family) in [
            ("PRETTY_NAME=\"Debian GNU/Linux 13\"\nID=debian\n", Family::Debian),
            ("ID=ubuntu\nID_LIKE=debian\n", Family::Debian),
            ("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", Family::Debian),
            ("ID=fedora\n", Family::Fedora),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", Family::Fedora),
            ("ID=\"opensuse-tumbleweed\"\nID_LIKE=\"opensuse suse\"\n", Family::Suse),
            ("ID='sles'\nID_LIKE=suse\n", Family::Suse),
            ("ID=arch\n", Family::Arch),
            ("ID=manjaro\nID_LIKE=arch\n", Family::Arch),
            ("ID=nixos\n", Family::Other),
            ("VERSION_ID=1\n", Family::Other),
            ("", Family::Other),
        ] {
            assert_eq!(Family::of(text), family, "{text}");
        }
    }

    #[test]
    fn hints_are_commands_of_the_distribution() {
        let package = Package { debian: "a", fedora: "b", suse: "c", arch: "d" };
        let families = [Family::Debian, Family::Fedora, Family::Suse, Family::Arch, Family::Other];
        assert_eq!(
            families.map(|family| family.install(&package)),
            [
                "apt-get install a",
                "dnf install b",
                "zypper install c",
                "pacman -S d",
                "install the package that Debian calls a"
            ]
        );
    }
}
