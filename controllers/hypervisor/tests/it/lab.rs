//! What every machine needs, made once: a kernel, a first root, a plan.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use neonvm_hypervisor::accelerator::{Accelerator, emulated_tsc_khz};
use neonvm_hypervisor::installation::Installation;
use neonvm_hypervisor::machine::{Machine, MachineEvent, Resources, firmware};
use neonvm_hypervisor::plan::{Architecture, CpuMode, CpuPlan, MachinePlan, MemoryPlan, emulated};
use neonvm_types::Bytes;
use tokio::io::AsyncReadExt as _;
use tokio::sync::broadcast::Receiver;
use tokio::sync::watch;

/// Slow machines under load take long; a test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

#[derive(Debug)]
pub(crate) struct Lab {
    kernel: PathBuf,
    initramfs: PathBuf,
}

/// The lab, or None after a line that says what is missing.
pub(crate) fn lab() -> Option<&'static Lab> {
    static LAB: OnceLock<Result<Lab, String>> = OnceLock::new();
    match LAB.get_or_init(make) {
        Ok(lab) => Some(lab),
        Err(reason) => {
            println!("SKIP machine: {reason}");
            None
        }
    }
}

pub(crate) fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("SKIP {what}: needs root");
    }
    root
}

fn make() -> Result<Lab, String> {
    if Architecture::native() != Some(Architecture::Amd64) {
        return Err("the kernels are for x86-64".to_owned());
    }
    for program in ["cc", "qemu-system-x86_64"] {
        let found = Command::new(program).arg("--version").output();
        if !found.is_ok_and(|output| output.status.success()) {
            return Err(format!("{program} is not installed"));
        }
    }
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let kernels = temporary.parent().ok_or("no target directory")?.join("kernels");
    let wanted = std::env::var("NEONVM_TEST_KERNEL").ok();
    let names: Vec<&str> = wanted.as_deref().map_or(vec!["built", "fetched"], |name| vec![name]);
    let kernel = names.iter().map(|name| kernels.join(name).join("vmlinux")).find(|path| path.exists());
    let kernel = kernel.ok_or_else(|| format!("no kernel in {}", kernels.display()))?;
    let directory = tempfile::tempdir_in(temporary).map_err(|error| error.to_string())?;
    let program = directory.path().join("init");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixture/init.c");
    let output = Command::new("cc").args(["-O1", "-static", "-s", "-o"]).arg(&program).arg(source).output();
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("cc: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let read = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    // The first archive brings the modules of a kernel that has some; what comes later wins.
    let mut archive = read(&kernel.with_file_name("initramfs.cpio")).unwrap_or_default();
    archive.extend(cpio(&read(&program)?));
    // Other test processes use the same file: it is made aside and put in place as a whole.
    let aside = directory.path().join("initramfs");
    let name = kernel.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default();
    let initramfs = temporary.join(format!("hypervisor-{name}.cpio"));
    let put = fs::write(&aside, archive).and_then(|()| fs::rename(&aside, &initramfs));
    put.map_err(|error| error.to_string())?;
    Ok(Lab { kernel, initramfs })
}

/// An archive with `/init` and the console (`newc`, Linux, Documentation/driver-api/early-userspace/buffer-format).
fn cpio(init: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, (name, mode, content, device)) in [
        ("dev", 0o040_755, &[][..], (0, 0)),
        ("dev/console", 0o020_600, &[][..], (5, 1)),
        ("init", 0o100_755, init, (0, 0)),
        ("TRAILER!!!", 0, &[][..], (0, 0)),
    ]
    .into_iter()
    .enumerate()
    {
        let length = content.len() as u32;
        let fields =
            [number as u32, mode, 0, 0, 1, 0, length, 0, 0, device.0, device.1, name.len() as u32 + 1, 0];
        bytes.extend(b"070701");
        for field in fields {
            bytes.extend(format!("{field:08x}").into_bytes());
        }
        bytes.extend(name.as_bytes());
        bytes.push(0);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

impl Lab {
    pub(crate) fn kernel(&self) -> &Path {
        &self.kernel
    }

    /// A machine of one CPU and 192 MiB that does what `task` says.
    pub(crate) fn plan(&self, task: &str) -> MachinePlan {
        MachinePlan {
            name: "lab".into(),
            uuid: "6f1c9f0e-4f1f-4c39-9f1f-0c9a4b0a5d11".into(),
            architecture: Architecture::Amd64,
            accelerator: Accelerator::Tcg,
            machine_type: "pc-q35-7.2".into(),
            firmware: firmware(&self.kernel, Architecture::Amd64).unwrap(),
            kernel: self.kernel.clone(),
            initramfs: Some(self.initramfs.clone()),
            command_line: format!(
                "console=ttyS0 panic=-1 {} memhp_default_state=online_movable maxcpus=1 lab={task}",
                emulated(Architecture::Amd64, emulated_tsc_khz()),
            ),
            cpu: CpuPlan { mode: CpuMode::Sysfs, boot: 1, max: 1 },
            memory: MemoryPlan { min: Bytes::mib(192), start: Bytes::mib(192), max: Bytes::mib(192) },
            disks: vec![],
            interfaces: vec![],
            direct_io: false,
            incoming: false,
        }
    }
}

pub(crate) async fn resources() -> Resources {
    let installation = Installation::find(None, Architecture::Amd64).await.unwrap();
    let mut resources = Resources::new(installation);
    resources.deadline = PATIENCE;
    resources
}

/// A machine that runs, and its console.
pub(crate) async fn start(mut plan: MachinePlan) -> (Machine, Console) {
    let resources = resources().await;
    plan.machine_type = resources.installation.machine_type();
    let machine = Machine::start(plan, resources).await.unwrap();
    let console = Console::follow(&machine);
    machine.continue_().await.unwrap();
    (machine, console)
}

/// What a machine has written to its serial console. It is read all the time: a guest waits for it.
#[derive(Debug)]
pub(crate) struct Console {
    bytes: watch::Receiver<Vec<u8>>,
}

impl Console {
    pub(crate) fn follow(machine: &Machine) -> Self {
        let mut stream = machine.take_console().unwrap();
        let (sender, bytes) = watch::channel(Vec::new());
        tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                sender.send_modify(|bytes: &mut Vec<u8>| bytes.extend(&buffer[..count]));
            }
        });
        Self { bytes }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.borrow()).into_owned()
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

/// Waits for an event.
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

/// Waits until something is so; looks every 10 ms.
pub(crate) async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !look().await {
        assert!(tokio::time::Instant::now() < deadline, "{what} did not come");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
