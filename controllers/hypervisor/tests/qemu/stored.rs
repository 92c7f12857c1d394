//! A guest whose memory goes to a file and comes back, in the QEMU of the host and in another one, by all ways that these have.

use std::future::pending;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use neonvm_hypervisor::machine::{Machine, Mapped, Resources, StateError, Stored};
use neonvm_hypervisor::plan::{MachinePlan, MemoryPlan};
use neonvm_test_support::{Need, need};
use neonvm_types::Bytes;

use crate::accelerator::other_qemu;
use crate::lab::{Console, PATIENCE, resources_of, until};
use crate::migration::plan_of_walker;
use crate::walker::RUN;

/// A guest that walks over its memory, and the directory of its files.
struct Guest {
    machine: Machine,
    console: Console,
    directory: tempfile::TempDir,
    program: Option<PathBuf>,
}

/// How often the storing of a guest is cancelled, each time later. QEMU 10.0 with `multifd` ended after 35 on average.
const CANCELS: u64 = 30;

impl Guest {
    /// Its memory is being stored when it is needed, or is stored already.
    async fn is_needed_after(&mut self, time: Duration) {
        self.machine.stop().await.unwrap();
        let file = self.file("cancelled");
        match self.machine.store_memory(&file, tokio::time::sleep(time)).await {
            Err(StateError::Cancelled) => assert!(!file.exists()),
            stored => {
                assert!(stored.is_ok() && time > Duration::ZERO, "{stored:?} after {time:?}");
                std::fs::remove_file(file).unwrap();
            }
        }
        until("an end of the transfer", async || self.machine.continue_().await.is_ok()).await;
        self.walks_on().await;
    }

    async fn start(program: Option<PathBuf>, device: bool) -> Need<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut plan = plan_of_walker(&directory, RUN)?;
        let max = plan.memory.min.saturating_add(if device { Bytes::mib(256) } else { Bytes::ZERO });
        plan.memory = MemoryPlan { max, ..plan.memory };
        let mut resources = resources(program.as_deref(), &directory).await;
        plan.machine_type = resources.installation.machine_type();
        resources.mapped = None;
        let machine = Machine::start(plan, resources).await.unwrap();
        let console = Console::follow(&machine);
        machine.continue_().await.unwrap();
        let guest = Self { machine, console, directory, program };
        guest.walks_on().await;
        Ok(guest)
    }

    fn laps(&self) -> usize {
        let text = self.console.text();
        assert!(!text.contains('X'), "memory is damaged");
        text.matches('.').count()
    }

    async fn walks_on(&self) {
        let seen = self.laps();
        until("laps", async || self.laps() >= seen + 3).await;
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join("store").join(name)
    }

    /// Stores the memory and ends QEMU.
    async fn store(&self, name: &str) -> Stored {
        self.machine.stop().await.unwrap();
        let stored = self.machine.store_memory(&self.file(name), pending()).await.unwrap();
        self.machine.quit().await.unwrap();
        self.machine.wait_for(PATIENCE).await.unwrap();
        let file = std::fs::metadata(self.file(name)).unwrap();
        assert_eq!(file.mode() & 0o777, 0o600);
        // What the guest walks over, and not all that it has.
        assert!(stored.bytes >= Bytes::mib(50) && stored.bytes < Bytes::mib(90), "{stored:?}");
        stored
    }

    async fn load(&mut self, name: &str, stored: &Stored, mapped: Option<Mapped>) -> Result<(), StateError> {
        let plan = MachinePlan { incoming: true, ..self.machine.plan().clone() };
        let resources = resources(self.program.as_deref(), &self.directory).await;
        let is_mapped = mapped.is_some();
        self.machine = Machine::start(plan, Resources { mapped, ..resources }).await.unwrap();
        assert_eq!(self.machine.is_mapped(), is_mapped);
        self.console = Console::follow(&self.machine);
        self.machine.load_memory(&self.file(name), stored).await
    }

    async fn goes_on(&self) {
        assert_eq!(self.laps(), 0);
        self.machine.continue_().await.unwrap();
        self.walks_on().await;
    }
}

async fn resources(program: Option<&Path>, directory: &tempfile::TempDir) -> Resources {
    let path = |name| Some(directory.path().join(name));
    Resources { meeting: path("meeting"), store: path("store"), ..resources_of(program).await }
}

/// Stored, mapped where QEMU can, stored again from there, and read as a whole. `device`: with memory that can be added.
async fn goes_and_comes(program: Option<PathBuf>, device: bool) -> Need {
    let mut guest = Guest::start(program, device).await?;
    let abilities = guest.machine.migration_abilities().await.unwrap();
    let mut stored = guest.store("first").await;
    let mapped = stored.map(&guest.file("first"), guest.machine.plan()).unwrap();
    assert_eq!(mapped.is_some(), guest.machine.version().major >= 9);
    guest.load("first", &stored, mapped).await.unwrap();
    guest.goes_on().await;
    // Both are set up by the same numbers of QEMU.
    assert_eq!(guest.machine.migration_abilities().await.unwrap(), abilities);

    // A guest that is needed runs on, at once and whenever that is.
    for moment in 0..CANCELS {
        guest.is_needed_after(Duration::from_millis(5 * moment)).await;
    }

    let mut stored = guest.store("second").await;
    let second = guest.file("second");
    std::fs::remove_file(guest.file("first")).unwrap();
    if stored.map(&second, guest.machine.plan()).unwrap().is_some() {
        stored.unmap(&second).unwrap();
    }
    guest.load("second", &stored, None).await.unwrap();
    std::fs::remove_file(second).unwrap();
    guest.goes_on().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_comes_back_from_a_file() {
    need!(goes_and_comes(None, false).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_comes_back_from_a_file_of_another_version_of_qemu() {
    let program = need!(other_qemu());
    for device in [false, true] {
        need!(goes_and_comes(Some(program.clone()), device).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_does_not_match_is_not_loaded() {
    let mut guest = need!(Guest::start(None, false).await);
    let stored = guest.store("first").await;
    let file = std::fs::File::options().write(true).open(guest.file("first")).unwrap();
    file.set_len(20 << 20).unwrap();
    let error = guest.load("first", &stored, None).await.unwrap_err();
    assert!(matches!(error, StateError::Ended(_)), "{error}");
    // Another version has another form.
    let program = need!(other_qemu());
    guest.program = Some(program);
    let error = guest.load("first", &stored, None).await.unwrap_err();
    assert!(matches!(error, StateError::Version { .. }), "{error}");
}
