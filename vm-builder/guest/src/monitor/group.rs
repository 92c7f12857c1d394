//! The control group whose limits follow the size of the VM: its files, written and read.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use neonvm_core_vertical_scaling::monitor::LimitValues;
use rustix::fs::inotify;
use tokio::io::unix::AsyncFd;

use super::log;
use crate::process::{Cgroup, freezer};

/// Group of the workload, as init makes it.
pub(super) const WORKLOAD: &str = "workload";

#[derive(Debug)]
pub(super) struct Group {
    name: String,
    group: Cgroup,
    /// Whether process 1 thaws the group if this process cannot. Without it nothing is frozen.
    supervised: bool,
    wanted: Option<LimitValues>,
    /// How often the group was at `memory.high`; none before it was read.
    events: Option<u64>,
    /// Wakes when `memory.events` changes.
    watcher: Option<AsyncFd<OwnedFd>>,
    watched: bool,
    /// The last complaint, which is not repeated.
    problem: String,
}

impl Group {
    /// The group of this name below `root`. Thawed: a monitor before this one may have left it frozen.
    pub(super) fn new(root: &Path, name: &str, supervised: bool) -> Self {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let watcher = inotify::init(flags).ok().and_then(|watcher| crate::system::watch(watcher).ok());
        let group = Cgroup::below(root, name);
        let _ = group.set_frozen(false);
        Self {
            name: name.to_owned(),
            group,
            supervised,
            wanted: None,
            events: None,
            watcher,
            watched: false,
            problem: String::new(),
        }
    }

    /// Gives it these limits, now or as soon as it is there; `None`: none any more.
    pub(super) fn limit(&mut self, values: Option<LimitValues>) {
        self.wanted = values;
        self.apply();
        if values.is_none() && self.group.path().exists() {
            for file in ["memory.high", "memory.max"] {
                let written = self.group.write(file, "max");
                self.note(file, written);
            }
        }
    }

    /// Memory in use, in bytes. None if the group is not there.
    pub(super) fn current(&self) -> Option<u64> {
        self.group.number("memory.current")
    }

    /// Looks at the group; whether it was at `memory.high` since the last time.
    pub(super) fn refresh(&mut self) -> bool {
        self.apply();
        let Some(events) = self.group.high_events() else {
            if !self.group.path().exists() {
                // It may come back as another one.
                (self.events, self.watched) = (None, false);
            }
            return false;
        };
        if !self.watched
            && let Some(watcher) = &self.watcher
        {
            let path = self.group.path().join("memory.events");
            self.watched = inotify::add_watch(watcher, path, inotify::WatchFlags::MODIFY).is_ok();
        }
        self.events.replace(events).is_some_and(|before| events > before)
    }

    /// Waits until [`refresh`](Self::refresh) may have news.
    pub(super) async fn changed(&self) {
        if let Some(watcher) = &self.watcher
            && let Ok(mut ready) = watcher.readable().await
        {
            let mut buffer = [0; 1024];
            while rustix::io::read(watcher.get_ref(), &mut buffer[..]).is_ok_and(|count| count > 0) {}
            ready.clear_ready();
            return;
        }
        std::future::pending::<()>().await;
    }

    pub(super) fn freeze(&mut self) {
        if self.supervised && freezer::announce(&self.name).is_ok() {
            let frozen = self.group.set_frozen(true);
            self.note("freeze", frozen);
        }
    }

    pub(super) fn thaw(&mut self) {
        if self.supervised {
            let thawed = self.group.set_frozen(false);
            self.note("thaw", thawed);
        }
    }

    /// Writes the limits if they are not in force: the group may be new. Events are counted from before they are.
    fn apply(&mut self) {
        let Some(wanted) = self.wanted else { return };
        self.events = self.events.or_else(|| self.group.high_events());
        // `memory.max` first: while the group grows, `memory.high` must not be above it for long.
        for (file, value) in [("memory.max", wanted.max), ("memory.high", Some(wanted.high))] {
            let Some(value) = value else { continue };
            if self.group.number(file) == Some(value) || !self.group.path().exists() {
                continue;
            }
            let written = self.group.write(file, &value.to_string());
            self.note(file, written);
        }
    }

    fn note(&mut self, what: &str, result: io::Result<()>) {
        if let Err(error) = result {
            let problem = format!("control group {:?}: {what}: {error}", self.name);
            if problem != self.problem {
                log(&problem);
                self.problem = problem;
            }
        }
    }
}
