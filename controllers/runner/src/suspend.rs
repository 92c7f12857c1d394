//! Suspension of a VM: its memory goes to a file, QEMU ends, and what arrives for the guest at its tap devices starts QEMU again from the file.
//!
//! Frames that arrive meanwhile wait at the tap devices, which this process keeps open, until the next QEMU reads them.

mod filter;
mod work;

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use neonvm_hypervisor::installation::Installation;
use neonvm_hypervisor::machine::{Machine, Mapped, Resources, StateError, Stored, TapFiles};
use neonvm_hypervisor::patience::scaled;
use neonvm_hypervisor::plan::{Backend, CpuMode, MachinePlan};
use neonvm_hypervisor::tap::{Instruction, Tap};
use neonvm_types::Bytes;
use tokio::sync::{oneshot, watch};

use neonvm_core_vm_lifecycle::runner::Stays;

use crate::guest::daemon::Daemon;
pub(crate) use work::Counters;

/// Directory with the memory of the suspended VM, among the VM's images.
pub(crate) const DIRECTORY: &str = "suspended";
/// The file to which memory goes.
const FILE: &str = "memory";
/// The file from which QEMU was started: as long as it runs, it may have it as memory.
const WOKEN: &str = "woken";
/// Time for QEMU to end when the memory is stored.
const QUIT: Duration = Duration::from_secs(5);
/// After connections of the agent are cut, until the guest stands still: what they still send must not wake it.
const QUIET: Duration = Duration::from_millis(30);

/// A tap device with the filter that is in force while the guest is suspended.
#[derive(Debug)]
struct Ear {
    tap: Tap,
    filter: Vec<Instruction>,
    vhost: bool,
}

/// What a suspended VM is made of, beside its disks.
#[derive(Debug)]
pub(crate) struct Bed {
    ears: Vec<Ear>,
    installation: Installation,
    meeting: Option<PathBuf>,
    directory: PathBuf,
    stored: Mutex<Option<Stored>>,
}

/// Connections of the agent into the guest: they are cut before the guest is suspended, so that they do not wake it.
#[derive(Debug, Default)]
pub(crate) struct Streams(watch::Sender<u64>);

impl Streams {
    /// Waits until all connections are cut.
    pub(crate) async fn cut(&self) {
        let mut cuts = self.0.subscribe();
        let _ = cuts.changed().await;
    }

    fn cut_all(&self) {
        self.0.send_modify(|cuts| *cuts += 1);
    }
}

impl Bed {
    /// Of a VM that is about to start with these resources; `None` if it has another network than tap devices.
    pub(crate) fn new(
        plan: &MachinePlan,
        resources: &Resources,
        overlay: Option<Ipv4Addr>,
    ) -> io::Result<Option<Self>> {
        let Some(directory) = resources.store.clone() else { return Ok(None) };
        if plan.interfaces.iter().any(|interface| interface.backend != Backend::Tap) {
            return Ok(None);
        }
        let mut ears = Vec::new();
        for (index, (interface, files)) in plan.interfaces.iter().zip(&resources.taps).enumerate() {
            let [queue] = files.queues.as_slice() else { return Ok(None) };
            let filter = filter::program(interface.mac, overlay.filter(|_| index > 0));
            ears.push(Ear { tap: Tap(queue.try_clone()?), filter, vhost: !files.vhosts.is_empty() });
        }
        let (installation, meeting) = (resources.installation.clone(), resources.meeting.clone());
        let bed = Self { ears, installation, meeting, directory, stored: Mutex::default() };
        bed.forget();
        Ok(Some(bed))
    }

    /// From now on only what counts waits at the tap devices; `deaf`: nothing.
    fn listen(&self, deaf: bool) -> io::Result<()> {
        let nothing = filter::nothing();
        self.ears.iter().try_for_each(|ear| ear.tap.filter(if deaf { &nothing } else { &ear.filter }))
    }

    /// Everything waits there again, for a guest that runs.
    fn open(&self) {
        for ear in &self.ears {
            if let Err(error) = ear.tap.unfilter() {
                tracing::warn!(%error, "the filter of a tap device stays");
            }
        }
    }

    /// Waits until a frame waits at a tap device.
    pub(crate) async fn knock(&self) {
        let waits = self.ears.iter().map(|ear| {
            Box::pin(async {
                if let Err(error) = ear.tap.arrived().await {
                    tracing::warn!(%error, "a tap device cannot be waited for: packets do not wake the VM");
                    std::future::pending::<()>().await;
                }
            })
        });
        futures_util::future::select_all(waits).await;
    }

    /// Removes the files with memory.
    pub(crate) fn forget(&self) {
        for name in [FILE, WOKEN] {
            let _ = std::fs::remove_file(self.directory.join(name));
        }
    }

    fn resources(&self, mapped: Option<Mapped>) -> io::Result<Resources> {
        let mut resources = Resources::new(self.installation.clone());
        (resources.store, resources.mapped) = (Some(self.directory.clone()), mapped);
        for ear in &self.ears {
            // The kernel's end of the last QEMU ended with it.
            let vhost =
                if ear.vhost { crate::network::vhost::open().map_err(io::Error::other)? } else { None };
            let queues = vec![ear.tap.0.try_clone()?];
            resources.taps.push(TapFiles { queues, vhosts: vhost.into_iter().collect() });
        }
        resources.meeting.clone_from(&self.meeting);
        Ok(resources)
    }
}

/// What came of the order to suspend.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// QEMU is gone; size of the file, and how long the guest has stood still.
    Suspended(Bytes, Duration),
    /// The guest runs on.
    Stays(Stays),
}

/// Suspends a VM whose guest agrees. `cancelled` lets the guest run on at any moment until QEMU is gone.
pub(crate) async fn suspend(
    bed: Arc<Bed>,
    machine: Arc<Machine>,
    daemon: Daemon,
    streams: Arc<Streams>,
    (deaf, cancelled): (bool, oneshot::Receiver<()>),
) -> Outcome {
    if let Err(why) = daemon.may_suspend().await {
        return Outcome::Stays(Stays::Denied(why));
    }
    streams.cut_all();
    tokio::time::sleep(QUIET).await;
    let before = work::delivered(bed.ears.len());
    let begun = std::time::Instant::now();
    let stored = store(&bed, &machine, before, (deaf, cancelled)).await;
    let why = match stored {
        Ok(stored) => {
            let bytes = stored.bytes;
            *bed.stored.lock().unwrap_or_else(PoisonError::into_inner) = Some(stored);
            if machine.quit().await.is_err() || machine.wait_for(scaled(QUIT)).await.is_none() {
                machine.kill();
                machine.wait().await;
            }
            let _ = std::fs::remove_file(bed.directory.join(WOKEN));
            return Outcome::Suspended(bytes, begun.elapsed());
        }
        Err(StateError::Cancelled) => Stays::Needed,
        Err(error) => Stays::Failed(error.to_string()),
    };
    bed.open();
    match machine.continue_().await {
        Ok(()) => Outcome::Stays(why),
        Err(error) => {
            // Its end is noticed where ends are noticed.
            tracing::error!(%error, "the guest cannot go on");
            machine.kill();
            Outcome::Stays(why)
        }
    }
}

/// Stops the guest and stores it, unless something arrives for it.
async fn store(
    bed: &Bed,
    machine: &Machine,
    delivered: Option<u64>,
    (deaf, cancelled): (bool, oneshot::Receiver<()>),
) -> Result<Stored, StateError> {
    let file = bed.directory.join(FILE);
    let failed = |what, source| StateError::File { what, path: file.clone(), source };
    machine.stop().await?;
    bed.listen(deaf).map_err(|source| failed("cannot filter the frames of the guest beside", source))?;
    // What it got at the last moment it has not answered.
    if !deaf && work::delivered(bed.ears.len()) != delivered {
        return Err(StateError::Cancelled);
    }
    let needed = async {
        tokio::select! {
            () = bed.knock(), if !deaf => {}
            Ok(()) = cancelled => {}
        }
    };
    tokio::pin!(needed);
    let stored = machine.store_memory(&file, &mut needed).await?;
    // QEMU runs until now, so the guest can go on at once.
    match futures_util::future::poll_immediate(&mut needed).await {
        Some(()) => {
            let _ = std::fs::remove_file(&file);
            Err(StateError::Cancelled)
        }
        None => Ok(stored),
    }
}

/// Starts QEMU from the stored memory, with the guest's CPUs stopped: with the file as memory if that is possible, or else by reading it.
/// `plan`: of the QEMU before; `cpus`: how many were plugged, `memory`: what the guest had.
pub(crate) async fn wake(
    bed: Arc<Bed>,
    plan: MachinePlan,
    cpus: u32,
    memory: Bytes,
) -> Result<Machine, String> {
    let stored = bed.stored.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mut stored = stored.ok_or("none is stored")?;
    let file = bed.directory.join(WOKEN);
    let failed = |error: io::Error| format!("{}: {error}", file.display());
    std::fs::rename(bed.directory.join(FILE), &file).map_err(failed)?;
    let plan = revived(plan, memory);
    if let Some(mapped) = stored.map(&file, &plan).map_err(failed)? {
        match start(&bed, plan.clone(), cpus, (&stored, Some(mapped))).await {
            Ok(machine) => return Ok(machine),
            Err(why) => tracing::warn!(why, "QEMU cannot have the stored memory as it is, and reads it"),
        }
        stored.unmap(&file).map_err(failed)?;
    }
    start(&bed, plan, cpus, (&stored, None)).await
}

async fn start(
    bed: &Bed,
    plan: MachinePlan,
    cpus: u32,
    (stored, mapped): (&Stored, Option<Mapped>),
) -> Result<Machine, String> {
    let resources = bed.resources(mapped).map_err(|error| format!("its devices: {error}"))?;
    let machine = Machine::start(plan, resources).await.map_err(|error| error.to_string())?;
    let loaded = async {
        if machine.plan().cpu.mode == CpuMode::Qmp {
            machine.set_cpus(cpus.max(1)).await.map_err(|error| error.to_string())?;
        }
        let file = bed.directory.join(WOKEN);
        machine.load_memory(&file, stored).await.map_err(|error| error.to_string())
    };
    match loaded.await {
        Ok(()) => Ok(machine),
        Err(why) => {
            machine.kill();
            let words = machine.wait().await.stderr.join("; ");
            Err(if words.is_empty() { why } else { format!("{why}: {words}") })
        }
    }
}

/// The plan of a machine whose memory comes from a file.
fn revived(plan: MachinePlan, memory: Bytes) -> MachinePlan {
    let mut plan = plan;
    plan.memory.start = memory.clamp(plan.memory.min, plan.memory.max);
    if plan.cpu.mode == CpuMode::Qmp {
        // The others are plugged before, so that they can be unplugged.
        plan.cpu.boot = 1;
    }
    plan.incoming = true;
    plan
}

/// The guest runs again: nothing is kept from it. Its file is of no use any more, unless it is its memory.
pub(crate) async fn resume(bed: &Bed, machine: &Machine) -> Result<(), String> {
    bed.open();
    machine.continue_().await.map_err(|error| error.to_string())?;
    if !machine.is_mapped() {
        bed.forget();
    }
    Ok(())
}
