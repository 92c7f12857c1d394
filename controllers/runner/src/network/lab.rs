//! Network namespaces for tests.

#![expect(clippy::print_stdout, reason = "tests say what they skip")]

use std::process::Command;

/// Runs a test in a network namespace of its own: that of a new thread, which ends with the test.
pub(super) fn inside(what: &str, test: impl FnOnce() + Send + 'static) {
    if !rustix::process::geteuid().is_root() || Command::new("nft").arg("-v").output().is_err() {
        println!("SKIP {what}: needs root and nft");
        return;
    }
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
}
