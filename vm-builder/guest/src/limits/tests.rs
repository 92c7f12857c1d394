use proptest::prelude::*;

use super::*;

fn of(memory: u64, name: &str) -> Vec<u64> {
    derived(memory).into_iter().find(|parameter| parameter.name == name).unwrap().least
}

/// Values of Linux 6.18 on a host of 24,684,096 KiB; it takes off what its image occupies, at most a twentieth here.
#[test]
fn the_table_is_that_of_linux() {
    let memory = 24_684_096 * KIB;
    let kernel: [(&str, &[u64]); 12] = [
        ("kernel/threads-max", &[192_731]),
        ("net/ipv4/tcp_mem", &[287_901, 383_869, 575_802]),
        ("net/ipv4/udp_mem", &[575_802, 767_738, 1_151_604]),
        ("net/ipv4/tcp_max_orphans", &[131_072]),
        ("net/ipv4/tcp_max_tw_buckets", &[131_072]),
        ("net/ipv4/tcp_max_syn_backlog", &[2_048]),
        ("net/ipv4/inet_peer_threshold", &[65_664]),
        ("net/netfilter/nf_conntrack_max", &[262_144]),
        ("fs/inotify/max_user_watches", &[192_536]),
        ("fs/fanotify/max_user_marks", &[205_039]),
        ("fs/epoll/max_user_watches", &[5_491_533]),
        ("user/max_user_namespaces", &[96_365]),
    ];
    for (name, expected) in kernel {
        for (ours, theirs) in of(memory, name).into_iter().zip(expected) {
            assert!(ours >= *theirs && ours - theirs <= theirs / 20, "{name}: {ours}, Linux: {theirs}");
        }
    }
}

#[test]
fn a_vm_of_8_gib_has_room_for_thousands_of_processes() {
    let memory = 8 * GIB;
    assert_eq!(of(memory, "kernel/threads-max"), [65_536]);
    assert_eq!(of(memory, "net/ipv4/tcp_mem"), [98_304, 131_072, 196_608]);
    assert_eq!(of(memory, "net/ipv4/tcp_rmem"), [0, 0, 6 << 20]);
    assert_eq!(tmpfs_options(memory), "size=4294967296,nr_inodes=1048576");
    assert_eq!((tasks_of_workload(memory), tasks_of_workload(128 << 20)), (43_690, 682));
}

#[test]
fn container_engines_give_the_same_to_processes() {
    let limits = rlimits(GIB);
    assert!(limits.contains(&(Resource::Nofile, Some(1_048_576))));
    assert!(limits.contains(&(Resource::Nproc, None)) && limits.contains(&(Resource::Core, None)));
}

#[test]
fn values_are_raised_and_never_lowered_and_settings_win() {
    assert_eq!(raised("4096\t131072\t1048576\n", &[0, 0, 6 << 20]).as_deref(), Some("4096 131072 6291456"));
    assert_eq!(raised("700\n", &[700]), None);
    assert_eq!(raised("max", &[1]), None);
    let directory = tempfile::tempdir().unwrap();
    for name in ["kernel/threads-max", "fs/epoll/max_user_watches", "fs/inotify/max_user_watches"] {
        fs::create_dir_all(directory.path().join(name).parent().unwrap()).unwrap();
        fs::write(directory.path().join(name), "10000\n").unwrap();
    }
    let chosen = BTreeSet::from([PathBuf::from("/proc/sys/fs/epoll/max_user_watches")]);
    let limits = Limits { memory: 8 * GIB, chosen, groups: Vec::new() };
    assert_eq!(limits.raise(directory.path()), Vec::<String>::new());
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    assert_eq!(read("kernel/threads-max"), "65536");
    assert_eq!(read("fs/epoll/max_user_watches"), "10000\n");
    assert_eq!(read("fs/inotify/max_user_watches"), "65472");
}

#[test]
fn memory_is_read_from_the_kernels_text() {
    assert_eq!(memory_at_boot("MemTotal:         118 kB\nMemFree: 1 kB\n"), Some(118 * KIB));
    assert_eq!(memory_at_boot("MemTotal: x"), None);
}

proptest! {
    #[test]
    fn more_memory_never_lowers_a_limit(one: u64, other: u64) {
        let (less, more) = (one.min(other), one.max(other));
        for (less, more) in derived(less).into_iter().zip(derived(more)) {
            prop_assert!(less.least.iter().zip(&more.least).all(|(less, more)| less <= more), "{less:?} {more:?}");
        }
        prop_assert!(tasks_of_workload(less) <= tasks_of_workload(more));
        prop_assert!(tasks_of_workload(more) < tasks(more));
    }
}
