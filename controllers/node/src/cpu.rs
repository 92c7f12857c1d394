//! The cgroup that holds the threads of a VM's vCPUs to a part of a CPU.
//!
//! It lies below the cgroup of the runner's container, so it has no more than the pod, and ends with the container: runtimes remove what
//! is below. Nothing is kept here, and a restart of the service loses nothing.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use neonvm_hypervisor::cgroup::{CgroupError, CpuGroup as Made, Hierarchy};
use neonvm_types::node_protocol::{CgroupVersion, CpuFile, CpuGroup};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, Uid, move_into_link_name_space};

/// Name of the cgroup, below that of the container.
const NAME: &str = "vcpus";

/// Where the cgroups of the node are for this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups {
    /// Where their hierarchies are mounted.
    pub root: PathBuf,
    /// The namespace in which all cgroups of the node have their names, and of which the files are opened: the kernel lets a thread move
    /// between cgroups of that namespace only. `None`: this process is in it.
    pub namespace: Option<PathBuf>,
    /// Whether the caller sees processes of others: in version 1 it moves those of its own user alone then, because the file is opened as
    /// that user. In version 2 threads stay within the cgroup of their process in any case.
    pub as_caller: bool,
}

impl Default for Cgroups {
    fn default() -> Self {
        Self { root: neonvm_hypervisor::cgroup::DEFAULT_ROOT.into(), namespace: None, as_caller: false }
    }
}

/// Why there is no cgroup.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("the cgroup {0:?} of the calling process is not one of its pod")]
    Foreign(String),
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { what, source }
}

/// Makes it for a process, or takes the one that is there. `of_pod`: the cgroup of the pod in which a process is whose cgroup is this one, if
/// that is one of the pod: the number of the process may have become another's.
pub(crate) fn make(
    (pid, user): (i32, u32),
    cgroups: &Cgroups,
    of_pod: impl FnOnce(&str) -> Option<String> + Send,
) -> Result<(CpuGroup, Vec<OwnedFd>), Error> {
    // A thread of its own: it ends in another namespace than it began in.
    std::thread::scope(|scope| {
        let inside = move || -> Result<_, Error> {
            if let Some(namespace) = &cgroups.namespace {
                let file = File::open(namespace).map_err(system("cannot open the namespace of cgroups"))?;
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::ControlGroup))
                    .map_err(|error| system("cannot enter the namespace of cgroups")(error.into()))?;
            }
            let made = below(&text(pid)?, &cgroups.root, of_pod)?;
            let user = Some(user).filter(|_| cgroups.as_caller && made.version() == CgroupVersion::V1);
            hand_over(made, user)
        };
        let thread = std::thread::Builder::new().name("in-namespace".into());
        let thread = thread.spawn_scoped(scope, inside).map_err(system("cannot start a thread"))?;
        thread.join().map_err(|_| system("internal")(io::Error::other("panic")))?
    })
}

fn text(pid: i32) -> Result<String, Error> {
    std::fs::read_to_string(format!("/proc/{pid}/cgroup"))
        .map_err(system("cannot read the cgroup of the runner"))
}

/// The same from the text of `/proc/PID/cgroup`.
fn below(text: &str, root: &Path, of_pod: impl FnOnce(&str) -> Option<String>) -> Result<Made, Error> {
    let hierarchy = Hierarchy::find(root)?;
    let own = hierarchy.group_in(text).unwrap_or_default();
    let group = of_pod(&own).ok_or(Error::Foreign(own))?;
    Ok(hierarchy.create(&group, NAME)?)
}

/// Its files. With `user` the one that moves threads is opened as that user, on this thread, which ends soon.
fn hand_over(made: Made, user: Option<u32>) -> Result<(CpuGroup, Vec<OwnedFd>), Error> {
    let directory = made.path().map(Path::to_owned);
    let (version, mut files) = made.into_files();
    if let (Some(user), Some(directory)) = (user.filter(|user| *user != 0), directory) {
        let path = directory.join("tasks");
        std::os::unix::fs::chown(&path, Some(user), None).map_err(system("cannot give the cgroup away"))?;
        // The directories on the way to it may be closed to the user.
        let found = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| system("cannot find the cgroup")(error.into()))?;
        rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::from_raw(user), Uid::ROOT)
            .map_err(|error| system("cannot become the user of the runner")(error.into()))?;
        let file = File::options().write(true).open(format!("/proc/self/fd/{}", found.as_raw_fd()));
        let file = file.map_err(system("cannot open the cgroup"))?;
        files.insert(CpuFile::Threads, file);
    }
    let (kinds, files) = files.into_iter().map(|(kind, file)| (kind, OwnedFd::from(file))).unzip();
    Ok((CpuGroup { version, files: kinds }, files))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use neonvm_test_support::{Missing, need, needs};

    use super::*;

    /// What the kernel makes with a cgroup is there before.
    fn root(version: CgroupVersion, group: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let (top, files): (_, &[&str]) = match version {
            CgroupVersion::V1 => {
                ("cpu", &["tasks", "cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.shares", "cpu.stat"])
            }
            CgroupVersion::V2 => {
                (".", &["cgroup.type", "cgroup.threads", "cpu.max", "cpu.weight", "cpu.stat"])
            }
        };
        let top = root.path().join(top);
        let own = top.join(group).join(NAME);
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(top.join("tasks"), "").unwrap();
        std::fs::write(root.path().join("cgroup.controllers"), "cpu memory").unwrap();
        files.iter().for_each(|file| std::fs::write(own.join(file), "").unwrap());
        root
    }

    #[test]
    fn a_pod_gets_a_cgroup_below_its_own_and_no_other() {
        for version in [CgroupVersion::V1, CgroupVersion::V2] {
            let root = root(version, "kubepods/pod-a/c");
            let text = "3:cpu,cpuacct:/kubepods/pod-a/c\n0::/kubepods/pod-a/c\n";
            let own = |path: &str| (path == "kubepods/pod-a/c").then(|| path.to_owned());
            let (group, files) = hand_over(below(text, root.path(), own).unwrap(), None).unwrap();
            assert_eq!(group.version, version);
            assert_eq!(group.files.len(), files.len());
            assert_eq!(group.files.first(), Some(&CpuFile::Threads));
            assert_eq!(group.files.contains(&CpuFile::Period), version == CgroupVersion::V1);
            let refused = below(text, root.path(), |_| None).unwrap_err().to_string();
            assert!(refused.contains("is not one of its pod"), "{refused}");
        }
    }

    #[test]
    fn a_process_without_a_cgroup_has_none_of_the_nodes() {
        let root = root(CgroupVersion::V2, "a");
        for text in ["", "0::/\n", "nonsense", "0::/../../b\n"] {
            let of_pod = |path: &str| (path == "a").then(|| path.to_owned());
            assert!(matches!(below(text, root.path(), of_pod), Err(Error::Foreign(_))), "{text}");
        }
        // A path that leads out of the hierarchy is none of the pod's, whatever it is named.
        let outside = below("0::/../../a\n", root.path(), |path| Some(path.to_owned()));
        assert!(matches!(outside, Err(Error::Cgroup(CgroupError::Path(_)))));
    }

    /// Directories that a node makes are closed to others.
    #[test]
    fn a_user_gets_the_file_of_a_cgroup_that_it_cannot_enter() {
        need!(needs::root());
        let root = root(CgroupVersion::V1, "pod-a");
        let own = || below("3:cpu:/pod-a\n", root.path(), |path| Some(path.to_owned())).unwrap();
        std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        // The thread becomes that user.
        let handed =
            std::thread::scope(|scope| scope.spawn(|| hand_over(own(), Some(65_534))).join().unwrap());
        assert_eq!(handed.unwrap().0.files.first(), Some(&CpuFile::Threads));
        let tasks = root.path().join("cpu/pod-a").join(NAME).join("tasks");
        assert_eq!(std::fs::metadata(tasks).unwrap().uid(), 65_534);
    }

    /// The kernel takes what is written to the files that were handed over.
    #[test]
    fn the_kernel_holds_threads_by_these_files() {
        let cgroups = Cgroups::default();
        let hierarchy = Hierarchy::find(&cgroups.root);
        let hierarchy = need!(hierarchy.map_err(|error| Missing::unavailable(error.to_string())));
        let own = hierarchy.own_group().unwrap();
        // A cgroup of the test's own, whose processes are none of others.
        let name = format!("neonvm-test-node-{}", std::process::id());
        let parent =
            need!(hierarchy.create(&own, &name).map_err(|error| Missing::unavailable(error.to_string())));
        let path = parent.path().unwrap().to_owned();
        let text = format!("1:cpu:/{own}/{name}\n0::/{own}/{name}\n").replace("//", "/");
        let made = below(&text, &cgroups.root, |path| Some(path.to_owned()));
        let made = need!(made.map_err(|error| Missing::unavailable(error.to_string())));
        let (made, files) = hand_over(made, None).unwrap();
        let files = made.files.iter().copied().zip(files.into_iter().map(File::from)).collect();
        let group = neonvm_hypervisor::cgroup::CpuGroup::of(made.version, files).unwrap();
        group.set_limit(Some(neonvm_types::MilliCpu::new(250))).unwrap();
        let quota = |file: &str| std::fs::read_to_string(path.join(NAME).join(file)).unwrap_or_default();
        match made.version {
            CgroupVersion::V1 => assert_eq!(quota("cpu.cfs_quota_us").trim(), "25000"),
            CgroupVersion::V2 => assert_eq!(quota("cpu.max").trim(), "25000 100000"),
        }
        assert_eq!(group.throttling().unwrap().throttled, 0);
        drop(group);
        std::fs::remove_dir(path.join(NAME)).unwrap();
    }
}
