//! Against directories that look like those of the kernel. That it obeys is tested with a machine.

use std::path::Path;

use super::super::hierarchy::Hierarchy;
use super::*;

const V1: &[&str] = &["tasks", "cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.shares", "cpu.stat"];
const V2: &[&str] = &["cgroup.type", "cgroup.threads", "cpu.max", "cpu.weight", "cpu.stat"];

fn root(version: Version) -> (tempfile::TempDir, Hierarchy) {
    let root = tempfile::tempdir().unwrap();
    match version {
        Version::V1 => {
            fs::create_dir(root.path().join("cpu")).unwrap();
            fs::write(root.path().join("cpu/tasks"), "").unwrap();
        }
        Version::V2 => {
            fs::write(root.path().join("cgroup.controllers"), "cpuset cpu io memory\n").unwrap();
        }
    }
    let hierarchy = Hierarchy::find(root.path()).unwrap();
    assert_eq!(hierarchy.version(), version);
    (root, hierarchy)
}

/// The kernel makes the files of a cgroup with it; here they are there before.
fn group(hierarchy: &Hierarchy, directory: &Path, files: &[&str]) -> CpuGroup {
    fs::create_dir_all(directory).unwrap();
    for file in files {
        fs::write(directory.join(file), "").unwrap();
    }
    let parent = directory.parent().unwrap();
    fs::write(parent.join("cgroup.subtree_control"), "memory").unwrap();
    hierarchy.create("/pod/", "vcpus").unwrap()
}

/// The value that was written last; a file of the kernel holds no other. Empty again afterwards.
fn value(directory: &Path, name: &str) -> String {
    let text = fs::read_to_string(directory.join(name)).unwrap();
    OpenOptions::new().write(true).truncate(true).open(directory.join(name)).unwrap();
    text
}

#[test]
fn it_is_known_whether_a_cgroup_is_limited() {
    for (version, file, free, held) in [
        (Version::V1, "cpu.cfs_quota_us", "-1\n", "50000\n"),
        (Version::V2, "cpu.max", "max 100000\n", "50000 100000\n"),
    ] {
        let (root, hierarchy) = root(version);
        let top = if version == Version::V1 { root.path().join("cpu") } else { root.path().to_path_buf() };
        let own = top.join("pod");
        fs::create_dir_all(&own).unwrap();
        assert!(!hierarchy.is_limited("pod"), "nothing can be read");
        fs::write(own.join(file), free).unwrap();
        assert!(!hierarchy.is_limited("pod"));
        fs::write(own.join(file), held).unwrap();
        assert!(hierarchy.is_limited("/pod") && !hierarchy.is_limited("other"));
        // In a container: the path is that of the host, and what is mounted is the container's cgroup.
        fs::write(top.join(file), held).unwrap();
        assert!(hierarchy.is_limited("kubepods/pod"));
    }
}

#[test]
fn v1() {
    let (root, hierarchy) = root(Version::V1);
    let directory = root.path().join("cpu/pod/vcpus");
    let group = group(&hierarchy, &directory, V1);
    group.set_limit(Some(MilliCpu::new(2250))).unwrap();
    assert_eq!(value(&directory, "cpu.cfs_period_us"), "100000");
    assert_eq!(value(&directory, "cpu.cfs_quota_us"), "225000");
    assert_eq!(value(&directory, "cpu.shares"), "2304");
    group.set_limit(None).unwrap();
    assert_eq!(value(&directory, "cpu.cfs_quota_us"), "-1");
    group.add_thread(77).unwrap();
    assert_eq!(value(&directory, "tasks"), "77");
    fs::write(directory.join("cpu.stat"), "nr_periods 5\nnr_throttled 3\nthrottled_time 2000000\n").unwrap();
    let time = Duration::from_millis(2);
    assert_eq!(group.throttling().unwrap(), Throttling { periods: 5, throttled: 3, time });
}

#[test]
fn v2() {
    let (root, hierarchy) = root(Version::V2);
    let directory = root.path().join("pod/vcpus");
    let group = group(&hierarchy, &directory, V2);
    assert_eq!(value(&directory, "cgroup.type"), "threaded");
    assert_eq!(value(directory.parent().unwrap(), "cgroup.subtree_control"), "+cpu");
    group.set_limit(Some(MilliCpu::new(250))).unwrap();
    assert_eq!(value(&directory, "cpu.max"), "25000 100000");
    assert_eq!(value(&directory, "cpu.weight"), "10");
    group.set_limit(None).unwrap();
    assert_eq!(value(&directory, "cpu.max"), "max 100000");
    group.add_thread(78).unwrap();
    assert_eq!(value(&directory, "cgroup.threads"), "78");
    let stat = "usage_usec 9\nnr_periods 50\nnr_throttled 2\nthrottled_usec 7\nnr_bursts 0\n";
    fs::write(directory.join("cpu.stat"), stat).unwrap();
    let time = Duration::from_micros(7);
    assert_eq!(group.throttling().unwrap(), Throttling { periods: 50, throttled: 2, time });
}

#[test]
fn sizes_stay_within_what_the_kernel_takes() {
    assert_eq!(quota(MilliCpu::new(1), 100_000), 1000);
    assert_eq!(quota(MilliCpu::MAX, 100_000), u64::from(u32::MAX) * 100);
    assert_eq!(
        (shares(MilliCpu::ZERO), shares(MilliCpu::new(1000)), shares(MilliCpu::MAX)),
        (2, 1024, 262_144)
    );
    assert_eq!((weight(2), weight(1024), weight(262_144)), (1, 39, 10_000));
}

/// What a node hands over is the same cgroup, and is not removed with it.
#[test]
fn a_group_is_handed_over_by_its_files() {
    for (version, top, files) in [(Version::V1, "cpu/pod/vcpus", V1), (Version::V2, "pod/vcpus", V2)] {
        let (root, hierarchy) = root(version);
        let directory = root.path().join(top);
        let (version, mut files) = group(&hierarchy, &directory, files).into_files();
        let without = files.split_off(&CpuFile::Weight);
        let Err(missing) = CpuGroup::of(version, files) else { panic!("files are missing") };
        assert!(missing.to_string().contains("of the cgroup is missing"), "{missing}");
        let (_, files) = hierarchy.create("pod", "vcpus").unwrap().into_files();
        drop(without);
        let group = CpuGroup::of(version, files).unwrap();
        assert_eq!(group.path(), None);
        group.add_thread(9).unwrap();
        let threads = if version == Version::V1 { "tasks" } else { "cgroup.threads" };
        assert_eq!(value(&directory, threads), "9");
        drop(group);
        assert!(directory.exists(), "its maker removes it");
    }
}

#[test]
fn no_controller_no_group() {
    let root = tempfile::tempdir().unwrap();
    assert!(matches!(Hierarchy::find(root.path()), Err(CgroupError::NoController(_))));
    fs::write(root.path().join("cgroup.controllers"), "hugetlb\n").unwrap();
    assert!(matches!(Hierarchy::find(root.path()), Err(CgroupError::NoController(_))));
}

#[test]
fn paths_stay_within_the_hierarchy() {
    let (_root, hierarchy) = root(Version::V1);
    for (parent, name) in [("../x", "a"), ("a/../../b", "a"), ("", ".."), ("", "a/b"), ("", "")] {
        assert!(matches!(hierarchy.create(parent, name), Err(CgroupError::Path(_))), "{parent} {name}");
    }
    assert!(matches!(hierarchy.create("missing", "a"), Err(CgroupError::Io { .. })));
}

#[test]
fn ones_own_cgroup_is_found() {
    let (_one, v1) = root(Version::V1);
    let (_two, v2) = root(Version::V2);
    let text = "5:memory:/other\n4:cpu,cpuacct:/kubepods/pod:1/c\n0::/system.slice\n";
    assert_eq!(v1.group_in(text).as_deref(), Some("kubepods/pod:1/c"));
    assert_eq!(v2.group_in(text).as_deref(), Some("system.slice"));
    assert_eq!(v1.group_in("3:cpuset:/\n0::/\n"), None);
    assert_eq!(v2.group_in("0::/\n").as_deref(), Some(""));
    assert_eq!(v2.group_in("garbage"), None);
}
