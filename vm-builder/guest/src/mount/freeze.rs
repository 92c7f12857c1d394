//! Freezing file systems for copies of their disks. A freeze has a bound, at which a thread of the daemon thaws; a file in memory shows
//! that one is in force, so that a daemon that is started again, and init before the VM ends, thaw what is left.
//!
//! While a file system is frozen a program that writes to it waits and cannot be killed, so no program of ours does: files are not replaced, and
//! file systems do not grow.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use neonvm_types::guest::{FreezeRequest, FreezeState, Frozen, ROOT, ReportKind, Thawed};

use super::grow::{device_of, is_whole};
use super::table;
use crate::report;

/// There as long as a freeze may be in force.
const MARKER: &str = "run/neonvm/frozen";

/// Why nothing is frozen.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// Of the request, or of what the guest has mounted.
    Wrong(String),
    /// Another freeze is in force.
    Busy(String),
    /// The kernel did not, or not in time.
    Failed(String),
}

/// Freezes a file system (`true`), or thaws it.
type Order = dyn Fn(&File, bool) -> io::Result<()> + Send + Sync;

struct Active {
    number: u64,
    since: Instant,
    until: Instant,
    names: Vec<String>,
    /// Open directories of those that are frozen.
    held: Vec<File>,
    /// They are being thawed.
    ending: bool,
}

#[derive(Default)]
struct State {
    number: u64,
    active: Option<Active>,
    /// The last freeze, if it has not been ended.
    expired: Option<Thawed>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    order: Box<Order>,
    marker: PathBuf,
    reports: bool,
}

/// The freeze of this guest; there is one at a time.
#[derive(Clone)]
pub struct Freezer(Arc<Shared>);

impl std::fmt::Debug for Freezer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Freezer").finish_non_exhaustive()
    }
}

impl Freezer {
    /// `root` stands for `/`. What an earlier daemon has left frozen is thawed.
    pub fn new(root: &Path) -> Self {
        let reports = std::env::var_os(crate::init::CHILD_MARKER).is_some();
        let order = |file: &File, freeze| crate::system::freeze(file.as_fd(), freeze);
        let this = Self::with(root, Box::new(order), reports);
        if this.0.marker.exists() {
            release(root);
            this.0.report_end(&Thawed { expired: true, ..Thawed::default() });
        }
        this
    }

    fn with(root: &Path, order: Box<Order>, reports: bool) -> Self {
        let (state, changed) = Default::default();
        Self(Arc::new(Shared { state, changed, order, marker: root.join(MARKER), reports }))
    }

    /// Whether a freeze is in force.
    pub fn is_active(&self) -> bool {
        self.0.lock().active.is_some()
    }

    /// How much longer.
    pub fn state(&self) -> FreezeState {
        let state = self.0.lock();
        let left = state.active.as_ref().map(|active| active.until.saturating_duration_since(Instant::now()));
        FreezeState { left_ms: left.map(milliseconds) }
    }

    /// Freezes all that is requested, or nothing. Waits for what is written now, which is written back before, because the first file
    /// system waits for the last.
    ///
    /// # Errors
    /// Why nothing is frozen.
    pub fn freeze(&self, root: &Path, request: &FreezeRequest) -> Result<Frozen, Refused> {
        let bound = request.bound().map_err(Refused::Wrong)?;
        let targets = find(root, request).map_err(Refused::Wrong)?;
        self.begin(targets, bound)
    }

    fn begin(&self, targets: Vec<(String, File)>, bound: Duration) -> Result<Frozen, Refused> {
        for (_, file) in &targets {
            let _ = rustix::fs::syncfs(file);
        }
        let names: Vec<String> = targets.iter().map(|(name, _)| name.clone()).collect();
        let number = self.reserve(names.clone(), bound)?;
        for (name, file) in targets {
            match (self.0.order)(&file, true) {
                Ok(()) => {
                    if let Err(file) = self.0.hold(number, file) {
                        let _ = (self.0.order)(&file, false);
                        return Err(Refused::Failed(format!("{name} was not frozen within the time")));
                    }
                }
                Err(error) => {
                    self.thaw();
                    let why = if error.kind() == io::ErrorKind::ResourceBusy {
                        "it is frozen already, by a program in the guest".to_owned()
                    } else {
                        error.to_string()
                    };
                    return Err(Refused::Failed(format!("freeze the file system of {name}: {why}")));
                }
            }
        }
        let left = self.state().left_ms.unwrap_or_default();
        Ok(Frozen { disks: names, seconds: u32::try_from(left.div_ceil(1000)).unwrap_or(u32::MAX) })
    }

    /// Begins a freeze and starts what ends it.
    fn reserve(&self, names: Vec<String>, bound: Duration) -> Result<u64, Refused> {
        let mut state = self.0.lock();
        if let Some(active) = &state.active {
            let left = active.until.saturating_duration_since(Instant::now()).as_secs();
            return Err(Refused::Busy(format!("a freeze is in force for another {left} s; thaw first")));
        }
        let failed = |error: io::Error| Refused::Failed(format!("prepare the thaw: {error}"));
        if let Some(directory) = self.0.marker.parent() {
            std::fs::create_dir_all(directory).map_err(failed)?;
        }
        let (number, since) = (state.number.wrapping_add(1), Instant::now());
        let until = since.checked_add(bound).unwrap_or(since);
        let shared = Arc::clone(&self.0);
        let timer = std::thread::Builder::new().name("thaw".into()).stack_size(128 << 10);
        timer.spawn(move || shared.expire(number, until)).map_err(failed)?;
        std::fs::write(&self.0.marker, "").map_err(failed)?;
        state.number = number;
        state.expired = None;
        state.active = Some(Active { number, since, until, names, held: Vec::new(), ending: false });
        Ok(number)
    }

    /// Ends the freeze. If the guest has ended it before, that is shown once.
    pub fn thaw(&self) -> Thawed {
        let mut state = self.0.lock();
        while state.active.as_ref().is_some_and(|active| active.ending) {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let Some(number) = state.active.as_ref().map(|active| active.number) else {
            return state.expired.take().unwrap_or_default();
        };
        drop(state);
        self.0.end(number, false).unwrap_or_default()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what was frozen; gives it back if the freeze with this number is over.
    fn hold(&self, number: u64, file: File) -> Result<(), File> {
        let mut state = self.lock();
        match state.active.as_mut().filter(|active| active.number == number && !active.ending) {
            Some(active) => {
                active.held.push(file);
                Ok(())
            }
            None => Err(file),
        }
    }

    /// Waits for the end of the freeze with this number, and is that at its bound.
    fn expire(&self, number: u64, until: Instant) {
        let mut state = self.lock();
        while state.active.as_ref().is_some_and(|active| active.number == number) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                if let Some(thawed) = self.end(number, true) {
                    self.report_end(&thawed);
                }
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Thaws what is frozen; `None` if another thread does. The freeze is in force until all is thawed.
    fn end(&self, number: u64, expired: bool) -> Option<Thawed> {
        let mut state = self.lock();
        let active = state.active.as_mut().filter(|active| active.number == number && !active.ending)?;
        active.ending = true;
        let (held, since, disks) = (std::mem::take(&mut active.held), active.since, active.names.clone());
        drop(state);
        for file in held.iter().rev() {
            // One that a program of the guest has thawed is no error.
            let _ = (self.order)(file, false);
        }
        let thawed = Thawed { disks, frozen_ms: milliseconds(since.elapsed()), expired };
        let mut state = self.lock();
        let _ = std::fs::remove_file(&self.marker);
        state.active = None;
        state.expired = expired.then(|| thawed.clone());
        self.changed.notify_all();
        Some(thawed)
    }

    /// Reports that no client has ended a freeze.
    fn report_end(&self, Thawed { disks, frozen_ms, .. }: &Thawed) {
        crate::log::of_daemon(&format!("a freeze was not ended within its time, {frozen_ms} ms: thawed"));
        if self.reports {
            use std::io::Write as _;
            let kind = ReportKind::FreezeExpired { disks: disks.clone(), frozen_ms: *frozen_ms };
            let mut output = std::io::stdout();
            let _ = writeln!(output, "{}", report::from_child(&kind)).and_then(|()| output.flush());
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The directories of what is requested; the root is the last, as most programs need it.
fn find(root: &Path, request: &FreezeRequest) -> Result<Vec<(String, File)>, String> {
    let disks = mounted(root);
    let wanted: BTreeSet<&String> = request.disks.iter().collect();
    let mut found = Vec::new();
    for name in wanted {
        let Some((_, file)) = disks.iter().find(|(serial, _)| serial == name) else {
            return Err(format!("disk {name} is not mounted"));
        };
        let file = file.try_clone().map_err(|error| format!("disk {name}: {error}"))?;
        found.push((name.clone(), file));
    }
    if request.root {
        let file = open(root).map_err(|error| format!("the root file system: {error}"))?;
        found.push((ROOT.to_owned(), file));
    }
    if found.is_empty() {
        return Err("name a disk, or the root file system".to_owned());
    }
    Ok(found)
}

fn open(directory: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(directory)
}

/// Directories on disks of the VM, with the serial number of the disk.
fn mounted(root: &Path) -> Vec<(String, File)> {
    let open = |(target, _): (String, String)| {
        let file = open(&root.join(target.trim_start_matches('/'))).ok()?;
        let device = device_of(&file).ok().filter(|device| is_whole(&device.name))?;
        Some((device.serial, file))
    };
    table::mounts(root)
        .into_iter()
        .filter(|(_, kind)| kind == "ext4" || kind == "xfs")
        .filter_map(open)
        .collect()
}

/// Thaws what a daemon has left frozen, if it has.
pub fn release(root: &Path) {
    let marker = root.join(MARKER);
    if !marker.exists() {
        return;
    }
    for (_, file) in mounted(root) {
        let _ = crate::system::freeze(file.as_fd(), false);
    }
    let _ = std::fs::remove_file(marker);
}

/// Whether a freeze may be in force.
pub fn may_be_active(root: &Path) -> bool {
    root.join(MARKER).exists()
}

/// The role `thaw`, which init starts before the VM ends: whatever writes must not wait then.
pub fn run() -> u8 {
    release(Path::new("/"));
    0
}

#[cfg(test)]
#[path = "freeze/tests.rs"]
mod tests;
