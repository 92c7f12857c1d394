//! Where the controller is.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::Version;
use super::error::CgroupError;
use super::group::CpuGroup;

/// Where hierarchies are mounted.
pub const DEFAULT_ROOT: &str = "/sys/fs/cgroup";

/// The hierarchy with the `cpu` controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    version: Version,
    root: PathBuf,
}

impl Hierarchy {
    /// Finds it below [`DEFAULT_ROOT`] or another directory.
    ///
    /// # Errors
    /// [`CgroupError::NoController`] if it is not there.
    pub fn find(root: &Path) -> Result<Self, CgroupError> {
        // The order matters on hybrid hosts: there v2 is mounted as well, without the controller.
        for name in ["cpu", "cpu,cpuacct", "cpuacct,cpu"] {
            let directory = root.join(name);
            if directory.join("tasks").exists() {
                return Ok(Self { version: Version::V1, root: directory });
            }
        }
        for directory in [root.to_owned(), root.join("unified")] {
            let controllers = fs::read_to_string(directory.join("cgroup.controllers")).unwrap_or_default();
            if controllers.split_whitespace().any(|name| name == "cpu") {
                return Ok(Self { version: Version::V2, root: directory });
            }
        }
        Err(CgroupError::NoController(root.to_owned()))
    }

    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The cgroup in a text such as that of `/proc/self/cgroup`, as a path within this hierarchy.
    #[must_use]
    pub fn group_in(&self, text: &str) -> Option<String> {
        text.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let here = match self.version {
                Version::V1 => controllers.split(',').any(|name| name == "cpu"),
                Version::V2 => number == "0" && controllers.is_empty(),
            };
            here.then(|| path.trim_start_matches('/').to_owned())
        })
    }

    /// The cgroup of this process.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn own_group(&self) -> Result<String, CgroupError> {
        let path = Path::new("/proc/self/cgroup");
        let text = fs::read_to_string(path).map_err(CgroupError::io("read", path))?;
        self.group_in(&text).ok_or_else(|| CgroupError::NoController(path.to_owned()))
    }

    /// Whether CPU is limited in a cgroup, or in the one that the hierarchy begins with: in a container that is the container's own.
    #[must_use]
    pub fn is_limited(&self, group: &str) -> bool {
        let quota = |directory: PathBuf| match self.version {
            Version::V1 => fs::read_to_string(directory.join("cpu.cfs_quota_us"))
                .is_ok_and(|text| text.trim().parse::<i64>().is_ok_and(|quota| quota > 0)),
            Version::V2 => fs::read_to_string(directory.join("cpu.max"))
                .is_ok_and(|text| !text.trim().is_empty() && !text.starts_with("max")),
        };
        quota(self.root.clone()) || self.directory(group).is_ok_and(quota)
    }

    /// Directory of a cgroup, if the path stays within the hierarchy.
    fn directory(&self, group: &str) -> Result<PathBuf, CgroupError> {
        let relative = Path::new(group.trim_start_matches('/'));
        if relative.components().all(|part| matches!(part, Component::Normal(_))) {
            return Ok(self.root.join(relative));
        }
        Err(CgroupError::Path(group.to_owned()))
    }

    /// Makes a cgroup for threads below another one, without a limit; one that is left over from before is taken.
    ///
    /// # Errors
    /// If it may not be made.
    pub fn create(&self, parent: &str, name: &str) -> Result<CpuGroup, CgroupError> {
        if name.is_empty() || name.contains('/') {
            return Err(CgroupError::Path(name.to_owned()));
        }
        let parent = self.directory(parent)?;
        let directory = parent.join(self.directory(name).map(|_| name)?);
        match fs::create_dir(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(CgroupError::io("make", &directory)(error));
            }
            _ => {}
        }
        let opened = self.equip(&parent, &directory);
        if opened.is_err() {
            let _ = fs::remove_dir(&directory);
        }
        opened
    }

    /// Makes a new cgroup one for threads, with the controller.
    fn equip(&self, parent: &Path, directory: &Path) -> Result<CpuGroup, CgroupError> {
        if self.version == Version::V2 {
            // Threads of one process can only be apart in threaded cgroups; then the controller may be switched on
            // although the parent has processes.
            let kind = directory.join("cgroup.type");
            fs::write(&kind, "threaded").map_err(CgroupError::io("write", &kind))?;
            let control = parent.join("cgroup.subtree_control");
            let enabled = fs::read_to_string(&control).unwrap_or_default();
            if !enabled.split_whitespace().any(|name| name == "cpu") {
                fs::write(&control, "+cpu")
                    .map_err(CgroupError::io("switch the cpu controller on in", &control))?;
            }
        }
        // The files of the controller appear with it.
        CpuGroup::open(directory.to_owned(), self.version)
    }
}
