//! What every machine needs, made once: a kernel, a first root, a plan.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use neonvm_hypervisor::accelerator::{Accelerator, emulated_tsc_khz};
use neonvm_hypervisor::installation::Installation;
use neonvm_hypervisor::machine::{Machine, MachineEvent, Resources, firmware};
use neonvm_hypervisor::plan::{Architecture, CpuMode, CpuPlan, MachinePlan, MemoryPlan, emulated};
use neonvm_test_support::guest::SmallGuest;
use neonvm_test_support::{Need, eventually_within, needs};
use neonvm_types::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::broadcast::Receiver;
use tokio::sync::watch;

/// Slow machines under load take long; a test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

#[derive(Debug)]
pub(crate) struct Lab {
    guest: SmallGuest,
}

/// The lab, made once.
pub(crate) fn lab() -> Need<&'static Lab> {
    static LAB: OnceLock<Need<Lab>> = OnceLock::new();
    LAB.get_or_init(make).as_ref().map_err(Clone::clone)
}

fn make() -> Need<Lab> {
    needs::qemu()?;
    Ok(Lab { guest: SmallGuest::compile("hypervisor", &init())? })
}

fn init() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/qemu/fixture/init.c")
}

/// A lab with the kernel of Debian 13.
pub(crate) fn lab_of_debian_13() -> Need<Lab> {
    needs::qemu()?;
    Ok(Lab { guest: SmallGuest::compile_for(&needs::debian_13_kernel()?, "hypervisor", &init())? })
}

impl Lab {
    pub(crate) fn kernel(&self) -> &Path {
        &self.guest.kernel
    }

    /// A VM of one CPU and 192 MiB that runs `task`.
    pub(crate) fn plan(&self, task: &str) -> MachinePlan {
        MachinePlan {
            name: "lab".into(),
            uuid: "6f1c9f0e-4f1f-4c39-9f1f-0c9a4b0a5d11".into(),
            architecture: Architecture::Amd64,
            accelerator: Accelerator::Tcg,
            machine_type: "pc-q35-7.2".into(),
            cpu_model: None,
            cpu_features_off: vec![],
            network_features_off: &[],
            firmware: firmware(&self.guest.kernel, Architecture::Amd64).unwrap(),
            kernel: self.guest.kernel.clone(),
            initramfs: Some(self.guest.initramfs.clone()),
            command_line: format!(
                "console=ttyS0 panic=-1 {} memhp_default_state=online_movable maxcpus=1 lab={task}",
                emulated(Architecture::Amd64, emulated_tsc_khz()),
            ),
            cpu: CpuPlan { mode: CpuMode::Sysfs, boot: 1, max: 1 },
            memory: MemoryPlan {
                min: Bytes::mib(192),
                start: Bytes::mib(192),
                max: Bytes::mib(192),
                exact: false,
            },
            disks: vec![],
            disk_queues: None,
            interfaces: vec![],
            direct_io: false,
            incoming: false,
        }
    }
}

pub(crate) async fn resources() -> Resources {
    resources_of(None).await
}

/// Those with another QEMU than the host's.
pub(crate) async fn resources_of(program: Option<&Path>) -> Resources {
    let installation = Installation::find(program, Architecture::Amd64).await.unwrap();
    let mut resources = Resources::new(installation);
    resources.deadline = PATIENCE;
    resources
}

pub(crate) async fn start(plan: MachinePlan) -> (Machine, Console) {
    start_with(plan, resources().await).await
}

/// The same with other resources.
pub(crate) async fn start_with(mut plan: MachinePlan, resources: Resources) -> (Machine, Console) {
    plan.machine_type = resources.installation.machine_type();
    let machine = Machine::start(plan, resources).await.unwrap();
    let console = Console::follow(&machine);
    machine.continue_().await.unwrap();
    (machine, console)
}

/// What a machine has written to its serial console. It is read all the time: a guest waits for it.
#[derive(Debug)]
pub(crate) struct Console {
    input: OwnedWriteHalf,
    bytes: watch::Receiver<Vec<u8>>,
}

impl Console {
    pub(crate) fn follow(machine: &Machine) -> Self {
        let (mut stream, input) = machine.take_console().unwrap().into_split();
        let (sender, bytes) = watch::channel(Vec::new());
        tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                sender.send_modify(|bytes: &mut Vec<u8>| bytes.extend(&buffer[..count]));
            }
        });
        Self { input, bytes }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.borrow()).into_owned()
    }

    pub(crate) async fn write(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn ready(&mut self) {
        let wanted = "LAB READY";
        let there = tokio::time::timeout(
            PATIENCE,
            self.bytes.wait_for(|bytes| bytes.windows(wanted.len()).any(|part| part == wanted.as_bytes())),
        )
        .await;
        let there = there.is_ok_and(|found| found.is_ok());
        assert!(there, "{wanted:?} did not come on the console:\n{}", self.text());
    }
}

pub(crate) async fn event(
    events: &mut Receiver<MachineEvent>,
    what: &str,
    is_it: impl Fn(&MachineEvent) -> bool,
) -> MachineEvent {
    let waiting = async {
        loop {
            let event = events.recv().await.unwrap();
            if is_it(&event) {
                return event;
            }
        }
    };
    let Ok(event) = tokio::time::timeout(PATIENCE, waiting).await else { panic!("{what} did not happen") };
    event
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, look: impl AsyncFnMut() -> bool) {
    eventually_within(PATIENCE, || what.to_owned(), look).await;
}
