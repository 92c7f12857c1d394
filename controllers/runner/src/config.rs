//! What the pod holds: the configuration, certificates, keys; and where things lie.

use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use neonvm_api::runner_pod::{
    CONFIG_DIRECTORY, CONFIG_FILE, DEVICES_DIRECTORY, DISKS_DIRECTORY, IMAGES_DIRECTORY, KERNEL_DIRECTORY,
    KERNEL_FILE, MOUNTS_DIRECTORY, ROOT_DISK_DIRECTORY, ROOT_DISK_FILE, RUN_DIRECTORY, RunnerClaim,
    RunnerConfig, SSH_PUBLIC_DIRECTORY, SWAP_DIRECTORY, Seal,
};
use neonvm_hypervisor::disks::PERSISTENT_FILE;

use neonvm_kit::anchors::sha256;

use crate::certificate::Renewed;
use crate::pod_error::{Error, read};

/// Where shells that the runner starts look for programs.
pub(crate) const PROGRAMS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A path of the container below the root of this pod.
pub(crate) fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// A short path of an open directory.
pub(crate) fn through(directory: &std::fs::File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// The pod as the runner sees it.
#[derive(Debug)]
pub(crate) struct PodFiles {
    pub(crate) root: PathBuf,
    pub(crate) config: RunnerConfig,
    pub(crate) certificate: Renewed,
    /// Lines of `authorized_keys`; empty if the VM has no SSH.
    pub(crate) authorized_keys: String,
}

impl PodFiles {
    /// Reads what is in the pod.
    ///
    /// # Errors
    /// If a file cannot be read, or is not what the pod was made with.
    pub(crate) fn load(root: &Path, seal: &Seal) -> Result<Self, Error> {
        let directory = below(root, CONFIG_DIRECTORY);
        let path = directory.join(CONFIG_FILE);
        let text = read(&path)?;
        let found = sha256(text.as_bytes());
        if found != seal.config {
            let (path, made_with) = (path.display().to_string(), seal.config.clone());
            return Err(Error::Forged { path, found, made_with });
        }
        let config: RunnerConfig = serde_json::from_str(&text)
            .map_err(|source| Error::Parse { path: path.display().to_string(), source })?;
        let certificate = Renewed::load(&directory, &seal.authorities)?;
        let authorized_keys = if config.spec.enable_ssh {
            read(&below(root, SSH_PUBLIC_DIRECTORY).join("authorized_keys"))?
        } else {
            String::new()
        };
        Ok(Self { root: root.to_owned(), config, certificate, authorized_keys })
    }

    /// The shared base of the root disk.
    pub(crate) fn root_base(&self) -> PathBuf {
        below(&self.root, ROOT_DISK_DIRECTORY).join(ROOT_DISK_FILE)
    }

    /// The kernel that the VM brings, if it does.
    pub(crate) fn own_kernel(&self) -> Option<PathBuf> {
        self.config
            .spec
            .guest
            .kernel_image
            .as_ref()
            .map(|_| below(&self.root, KERNEL_DIRECTORY).join(KERNEL_FILE))
    }

    /// A file among the generated images.
    pub(crate) fn image(&self, name: &str) -> PathBuf {
        below(&self.root, IMAGES_DIRECTORY).join(name)
    }

    /// The file of an empty disk.
    pub(crate) fn empty_disk(&self, name: &str) -> PathBuf {
        below(&self.root, DISKS_DIRECTORY).join(name).join("disk.raw")
    }

    /// The file or block device of a disk on a claim.
    pub(crate) fn claim(&self, disk: &str, claim: &RunnerClaim) -> PathBuf {
        if claim.block {
            below(&self.root, DEVICES_DIRECTORY).join(disk)
        } else {
            below(&self.root, DISKS_DIRECTORY).join(disk).join(PERSISTENT_FILE)
        }
    }

    /// The file of the swap disk.
    pub(crate) fn swap(&self) -> PathBuf {
        below(&self.root, SWAP_DIRECTORY).join("swap.raw")
    }

    /// Where files for a path of the guest are mounted.
    pub(crate) fn mounted(&self, path: &str) -> PathBuf {
        below(&self.root, MOUNTS_DIRECTORY).join(path.trim_start_matches('/'))
    }

    /// The directory of sockets, made if it is missing.
    pub(crate) fn run_directory(&self) -> Result<PathBuf, Error> {
        let path = below(&self.root, RUN_DIRECTORY);
        std::fs::create_dir_all(&path)
            .map_err(|source| Error::Make { path: path.display().to_string(), source })?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use neonvm_kit::anchors::fingerprints;
    use neonvm_kit::ca::Authority;

    use super::*;

    /// A user who can write the secret of a pod names another address, or node access, or a script.
    #[test]
    fn a_forged_configuration_is_refused_by_name() {
        let root = tempfile::tempdir().unwrap();
        let directory = below(root.path(), CONFIG_DIRECTORY);
        std::fs::create_dir_all(&directory).unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
        let (authority, _) = Authority::generate().unwrap();
        let identity = authority.peer_for("x", &["x.example".to_owned()], 3600).unwrap();
        let (other, _) = Authority::generate().unwrap();
        let config = |interface: &str| {
            serde_json::json!({"namespace": "d", "name": "v", "uid": "u", "pod": "p", "cpuScalingMode": "SysfsScaling",
                "settings": {}, "extraNet": {"interface": interface, "ip": "10.40.0.1", "mask": "255.255.0.0"},
                "spec": {"enableSSH": false, "guest": {"cpus": {"min": 1, "max": 1, "use": 1},
                    "memorySlots": {"min": 1, "max": 1, "use": 1}, "rootDisk": {"image": "i"}}}})
            .to_string()
        };
        write(CONFIG_FILE, &config("net1"));
        write("tls.crt", &identity.certificate);
        write("tls.key", &identity.key);
        write("ca.crt", authority.certificate());
        let seal = Seal {
            config: sha256(config("net1").as_bytes()),
            authorities: fingerprints(authority.certificate()).unwrap(),
        };
        assert_eq!(PodFiles::load(root.path(), &seal).unwrap().config.name, "v");
        write(CONFIG_FILE, &config("eth0"));
        let error = PodFiles::load(root.path(), &seal).unwrap_err().to_string();
        assert!(
            error.contains(&seal.config) && error.contains(&sha256(config("eth0").as_bytes())),
            "{error}"
        );
        // A pod without a seal runs nothing.
        let none = Seal { config: String::new(), authorities: Vec::new() };
        assert!(matches!(PodFiles::load(root.path(), &none), Err(Error::Forged { .. })));
        write(CONFIG_FILE, &config("net1"));
        write("ca.crt", other.certificate());
        let error = PodFiles::load(root.path(), &seal).unwrap_err().to_string();
        assert!(error.contains("none of the authorities is known"), "{error}");
    }
}
