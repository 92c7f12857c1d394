//! Network namespaces for tests.

use std::process::Command;
use std::thread::JoinHandle;

use neonvm_test_support::{Need, needs};

/// A network namespace that is removed when this goes out of scope; it lives on until its last thread has ended.
pub(super) struct Namespace(String);

impl Namespace {
    /// Needs [`needs::network_namespaces`].
    pub(super) fn new(what: &str) -> Self {
        let name = format!("nvr{}-{what}", std::process::id());
        ip(&format!("netns add {name}"));
        Self(name)
    }

    /// Its name, for `ip`.
    pub(super) fn name(&self) -> &str {
        &self.0
    }

    /// Runs something in it, on a thread of its own.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let namespace = std::fs::File::open(format!("/run/netns/{}", self.0)).expect("a namespace");
        std::thread::spawn(move || {
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), kind)
                .expect("root may enter");
            work()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).output().expect("ip");
    assert!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Runs a test in a separate network namespace: that of a new thread, which ends with the test.
pub(super) fn inside(what: &str, test: impl FnOnce() + Send + 'static) -> Need {
    needs::network_namespaces()?;
    let result = Namespace::new(what).spawn(test).join();
    result.expect("well");
    Ok(())
}
