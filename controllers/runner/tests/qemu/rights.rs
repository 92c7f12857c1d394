//! The rights of a runner and its QEMU while a guest runs, as the kernel reports them, compared with SECURITY.md.

use neonvm_test_support::{need, needs};
use rustix::thread::CapabilitySet;

use crate::world::World;

const DOCUMENT: &str = include_str!("../../../../SECURITY.md");

/// Names in the second column of a row of the table.
fn documented(process: &str) -> CapabilitySet {
    let head = format!("| {process} |");
    let row = DOCUMENT.lines().find_map(|line| line.strip_prefix(&head)).expect("a row");
    let names = row.split('|').next().unwrap().split('`').skip(1).step_by(2);
    names.map(|name| CapabilitySet::from_name(name).expect("a capability")).collect()
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {status}")).trim()
}

fn set(status: &str, name: &str) -> CapabilitySet {
    CapabilitySet::from_bits_retain(u64::from_str_radix(field(status, name), 16).unwrap())
}

#[tokio::test]
async fn no_thread_has_more_rights_than_documented() {
    need!(needs::root());
    let world = need!(World::new());
    let runner = world.source().await;
    let kept = documented("runner, while the guest runs");
    assert_eq!(kept, neonvm_runner::KEPT);
    // But for the first thread, which is that of the test program and starts nothing any more.
    let own = runner.process();
    let threads: Vec<String> =
        own.threads().into_iter().filter(|(id, _)| *id != own.0).map(|(_, status)| status).collect();
    for status in &threads {
        for name in ["CapEff", "CapPrm", "CapBnd"] {
            assert!(kept.contains(set(status, name)), "{name} of {status}");
        }
        for name in ["CapInh", "CapAmb"] {
            assert!(set(status, name).is_empty(), "{name} of {status}");
        }
        assert_eq!(field(status, "NoNewPrivs"), "1", "{status}");
    }
    let names: Vec<&str> = threads.iter().map(|status| field(status, "Name")).collect();
    assert!(names.contains(&"log") && names.contains(&"qemu-parent") && names.len() >= 3, "{names:?}");

    let none = documented("QEMU");
    assert!(none.is_empty());
    for (_, status) in runner.qemu().threads() {
        for name in ["CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"] {
            assert_eq!(set(&status, name), none, "{name} of {status}");
        }
        // Its own filter.
        assert_eq!((field(&status, "NoNewPrivs"), field(&status, "Seccomp")), ("1", "2"), "{status}");
        assert_eq!(field(&status, "Uid"), "64055\t64055\t64055\t64055");
        assert_eq!(field(&status, "Groups"), "");
    }
}
