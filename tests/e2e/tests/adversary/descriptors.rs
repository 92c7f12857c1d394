//! Descriptors of the shell that started a cluster: no process of the cluster keeps one, so neither a guest nor a tenant's command reads
//! what the administrator had open.

use std::os::unix::fs::PermissionsExt as _;

use neonvm_e2e::client::Resource;
use neonvm_test_support::need;

use crate::cluster::Cluster;
use crate::home::Home;
use crate::runners::{kernel, run_idle};

/// What the open files of a process are.
fn open_files(pid: u32) -> Vec<String> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(|file| Some(std::fs::read_link(file.path()).ok()?.display().to_string())).collect()
}

#[test]
fn nothing_that_a_shell_left_open_reaches_a_guest_or_a_command() {
    let kernel = need!(kernel());
    let home = Home::with_kernel(&kernel);
    let [secret, pipe] = ["only-of-root", "written"].map(|name| home.path().join(name));
    std::fs::write(&secret, "ROOT-ONLY-FILE-CONTENT").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let redirections = format!("7<{} 9>>{}", secret.display(), pipe.display());
    let cluster = Cluster::started_with(home, 1, &redirections);
    run_idle(&cluster, &["a"]);

    let processes = cluster.processes();
    assert!(processes.iter().any(|one| one.role.starts_with("qemu-system")), "{processes:?}");
    for process in processes {
        let files = open_files(process.pid);
        assert!(!files.is_empty(), "{process:?}");
        let foreign = |file: &&String| file.ends_with("/only-of-root") || file.ends_with("/written");
        assert_eq!(files.iter().find(foreign), None, "{process:?}");
    }
    let vm = cluster.client().get(Resource::VM, "a").unwrap();
    let pod = vm["status"]["podName"].as_str().unwrap();
    let run = |script: &str| cluster.client().exec(pod, &["sh", "-c", script]).unwrap();
    let listed = run("ls -l /proc/self/fd; for at in /proc/self/fd/*; do echo ${at##*/}; done");
    // Three streams, and the directory that is listed.
    let more = listed.stdout.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|at| *at > 3);
    assert_eq!(more.count(), 0, "{listed:?}");
    for descriptor in 3..=9 {
        let read = run(&format!("cat <&{descriptor}"));
        assert!(read.code != Some(0) && !read.stdout.contains("ROOT-ONLY"), "{descriptor}: {read:?}");
    }
}
