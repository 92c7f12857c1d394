//! Network namespaces for tests.

use std::process::Command;

use neonvm_test_support::{Need, needs};

/// Runs a test in a separate network namespace: that of a new thread, which ends with the test.
pub(super) fn inside(what: &str, test: impl FnOnce() + Send + 'static) -> Need {
    needs::network_namespaces()?;
    let name = format!("nvr{}-{what}", std::process::id());
    let ip = |arguments: &str| {
        let done = Command::new("ip").args(arguments.split(' ')).output().expect("ip");
        assert!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
    };
    ip(&format!("netns add {name}"));
    let inside = std::thread::spawn({
        let name = name.clone();
        move || {
            let namespace = std::fs::File::open(format!("/run/netns/{name}")).expect("a namespace");
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), kind)
                .expect("root may enter");
            test();
        }
    });
    let result = inside.join();
    ip(&format!("netns del {name}"));
    result.expect("well");
    Ok(())
}
