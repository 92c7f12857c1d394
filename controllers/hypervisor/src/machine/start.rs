//! Start of a machine.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream as Socket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use rustix::fs::OFlags;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

use super::meeting::Meeting;
use super::process::Process;
use super::resources::Resources;
use super::{Machine, Streams, kernel, stderr, supervise};
use crate::landlock::{Allowed, Domain};
use crate::plan::{
    Backend, Descriptors, DiskDescriptors, DiskImage, InterfacePlan, MachinePlan, MemoryFile, PlanError,
    TapDescriptors, arguments, table_of_cpus,
};
use crate::qmp::{QmpError, Session};
use crate::sys::ChildSetup;

/// Bytes that QEMU may write before they are read; the kernel may allow less.
const SOCKET_BUFFER: usize = 1 << 20;

/// Why a machine does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There can be no such machine.
    #[error("this machine cannot be: {0}")]
    Plan(#[from] PlanError),
    /// A file cannot be opened.
    #[error("cannot open {}: {source}", path.display())]
    File {
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// QEMU cannot be started.
    #[error("cannot start {}: {source}", program.display())]
    Process {
        program: PathBuf,
        /// Why it could not be started.
        source: io::Error,
    },
    /// QEMU ended, or its monitor does not answer.
    #[error("QEMU does not start: {}", self.reason())]
    Qemu {
        /// What happened to the session with it.
        source: QmpError,
        /// What it wrote, oldest line first.
        stderr: Vec<String>,
    },
}

impl StartError {
    /// What QEMU wrote about it, or else what happened.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Qemu { source, stderr } if stderr.is_empty() => source.to_string(),
            Self::Qemu { stderr, .. } => stderr.join("; "),
            other => other.to_string(),
        }
    }

    /// What QEMU wrote, oldest line first.
    #[must_use]
    pub fn stderr(&self) -> &[String] {
        match self {
            Self::Qemu { stderr, .. } => stderr,
            _ => &[],
        }
    }
}

/// Descriptors that QEMU inherits.
#[derive(Debug, Default)]
struct Inherited {
    held: Vec<OwnedFd>,
}

impl Inherited {
    fn add(&mut self, descriptor: OwnedFd) -> i32 {
        let number = descriptor.as_raw_fd();
        self.held.push(descriptor);
        number
    }

    /// Opens a file as QEMU uses it: from version 9.1 on, QEMU takes a descriptor for direct I/O only if it was opened for that.
    fn file(&mut self, path: &Path, write: bool, direct: bool) -> Result<i32, StartError> {
        let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
        let flags = i32::try_from(flags.bits()).unwrap_or_default();
        let opened = OpenOptions::new().read(true).write(write).custom_flags(flags).open(path);
        let failed = |source| StartError::File { path: path.to_owned(), source };
        opened.map(|file| self.add(file.into())).map_err(failed)
    }

    /// A directory that is shared with QEMU.
    fn directory(&mut self, path: Option<&Path>) -> Result<Option<Meeting>, StartError> {
        let Some(path) = path else { return Ok(None) };
        let failed = |source| StartError::File { path: path.to_owned(), source };
        let (directory, theirs) = Meeting::open(path).map_err(failed)?;
        self.add(theirs);
        Ok(Some(directory))
    }

    /// One end for QEMU, one for us.
    fn socket(&mut self) -> io::Result<(i32, UnixStream)> {
        let (ours, theirs) = Socket::pair()?;
        // The kernel counts far more than a byte for a byte that is written alone, as those of a console are.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&theirs, SOCKET_BUFFER);
        ours.set_nonblocking(true)?;
        Ok((self.add(theirs.into()), UnixStream::from_std(ours)?))
    }

    /// All sockets: what QEMU gets, that of its monitor, and those of the guest.
    fn sockets(&mut self) -> io::Result<(Descriptors, UnixStream, Streams)> {
        let (monitor, monitor_stream) = self.socket()?;
        let (console, console_stream) = self.socket()?;
        let (log, log_stream) = self.socket()?;
        let (report, report_stream) = self.socket()?;
        let descriptors = Descriptors { monitor, console, log, report, ..Descriptors::default() };
        let (console, log, report) = (Some(console_stream), Some(log_stream), Some(report_stream));
        Ok((descriptors, monitor_stream, Streams { console, log, report, stderr: None }))
    }
}

/// The file that is the memory, for QEMU.
fn memory(store: &Meeting, mapped: &super::Mapped) -> MemoryFile {
    MemoryFile { path: store.path_of_qemu(&mapped.name), offset: mapped.offset }
}

impl Machine {
    /// Starts QEMU with the guest's CPUs stopped; [`Machine::continue_`] lets them run.
    ///
    /// # Errors
    /// If there can be no such machine, a file cannot be opened, or QEMU does not start.
    pub async fn start(plan: MachinePlan, resources: Resources) -> Result<Self, StartError> {
        let until = Instant::now() + crate::patience::scaled(resources.deadline);
        let program = resources.installation.program.clone();
        let process_error = |source| StartError::Process { program: program.clone(), source };
        plan.check()?;
        let mut inherited = Inherited::default();
        let (mut descriptors, monitor_stream, streams) = inherited.sockets().map_err(process_error)?;
        files(&plan, &mut inherited, &mut descriptors)?;
        let meeting = inherited.directory(resources.meeting.as_deref())?;
        let store = inherited.directory(resources.store.as_deref())?;
        descriptors.memory = store.as_ref().and_then(|store| Some(memory(store, resources.mapped.as_ref()?)));
        let process_error = |source| StartError::Process { program: program.clone(), source };
        let directories = (meeting.as_ref(), store.as_ref());
        let domain = domain(&plan, &program, &inherited, &descriptors, directories).map_err(process_error)?;
        descriptors.interfaces = taps(resources.taps, &mut inherited);
        let mut command = Command::new(&program);
        command.args(arguments(&plan, &descriptors)?);
        let setup = ChildSetup {
            inherit: inherited.held.iter().map(|descriptor| descriptor.as_raw_fd()).collect(),
            parent: rustix::process::getpid(),
            domain,
        };
        let (process, errors) =
            Process::start(command, setup, inherited.held).await.map_err(process_error)?;
        // From here on an early return must not leave the process behind.
        let process = Guard(Some(process));
        let (tail, stderr, stderr_task) = stderr::follow(errors).map_err(process_error)?;
        let left = until.saturating_duration_since(Instant::now());
        let (session, greeting, first) = match Session::open(monitor_stream, left).await {
            Ok(opened) => opened,
            Err(source) => {
                drop(process);
                let patience = Instant::now() + supervise::PATIENCE;
                let _ = timeout_at(patience, stderr_task).await;
                return Err(StartError::Qemu { source, stderr: tail.lines() });
            }
        };
        let streams = Streams { stderr: Some(stderr), ..streams };
        let (plan, session) = (Arc::new(plan), Arc::new(session));
        let mut process = process;
        let Some(process) = process.0.take() else {
            return Err(process_error(io::Error::other("the process is gone")));
        };
        let watched = supervise::Watched {
            plan: Arc::clone(&plan),
            session: Arc::clone(&session),
            ended: process.ended(),
            tail,
            stderr: stderr_task,
        };
        let (supervisor, events, exit) = supervise::spawn(watched, first);
        let (streams, version, is_mapped) =
            (Mutex::new(streams), greeting.version, descriptors.memory.is_some());
        let limits = super::limits::Limits::default();
        Ok(Self {
            plan,
            session,
            process,
            version,
            events,
            exit,
            streams,
            limits,
            supervisor,
            meeting,
            store,
            is_mapped,
        })
    }
}

/// Kills its process when dropped, unless the process was taken out.
struct Guard(Option<Process>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(process) = &self.0 {
            process.kill();
        }
    }
}

fn files(
    plan: &MachinePlan,
    inherited: &mut Inherited,
    descriptors: &mut Descriptors,
) -> Result<(), StartError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| StartError::File { path, source }
    };
    descriptors.kernel = inherited.file(&plan.kernel, false, false)?;
    if let Some(path) = &plan.initramfs {
        descriptors.initramfs = Some(inherited.file(path, false, false)?);
    }
    if plan.cpu.all_are_listed(plan.architecture, plan.accelerator) {
        let table = kernel::in_memory("cpus", table_of_cpus(plan.cpu.max).as_slice());
        descriptors.table_of_cpus = Some(inherited.add(table.map_err(failed(Path::new("memfd:cpus")))?));
    }
    for disk in &plan.disks {
        let (file, base) = match &disk.image {
            DiskImage::Raw(file) | DiskImage::Qcow2(file) | DiskImage::Volume { path: file, .. } => {
                (file, None)
            }
            DiskImage::Overlay { file, base, .. } => (file, Some(base)),
        };
        let file = inherited.file(file, !disk.read_only, plan.direct_io && !disk.read_only)?;
        let base = base.map(|base| inherited.file(base, false, false)).transpose()?;
        descriptors.disks.push(DiskDescriptors { file, base });
    }
    Ok(())
}

/// What QEMU may open by name: itself, its devices, the kernel through its descriptor, and sockets of a migration.
fn domain(
    plan: &MachinePlan,
    program: &Path,
    inherited: &Inherited,
    descriptors: &Descriptors,
    (meeting, store): (Option<&Meeting>, Option<&Meeting>),
) -> io::Result<Option<Domain>> {
    let again = [Some(descriptors.kernel), descriptors.initramfs];
    let again = |file: &&OwnedFd| again.contains(&Some(file.as_raw_fd()));
    let is_user = |interface: &InterfacePlan| matches!(interface.backend, Backend::User { .. });
    let tcp = plan.interfaces.iter().any(is_user);
    // QEMU's own network reads the name servers again when they change: the file is another one then.
    let servers = if tcp { std::fs::canonicalize("/etc/resolv.conf").ok() } else { None };
    let allowed = Allowed {
        program: Some(program),
        files: inherited.held.iter().filter(again).map(AsFd::as_fd).collect(),
        sockets: meeting.map(Meeting::directory),
        store: store.map(Meeting::directory),
        read: servers.as_deref().and_then(Path::parent).map(Path::to_owned).into_iter().collect(),
        tcp,
        ..Allowed::default()
    };
    Domain::new(&allowed)
}

fn taps(taps: Vec<super::TapFiles>, inherited: &mut Inherited) -> Vec<TapDescriptors> {
    let mut add = |files: Vec<OwnedFd>| files.into_iter().map(|file| inherited.add(file)).collect();
    taps.into_iter().map(|tap| TapDescriptors { queues: add(tap.queues), vhosts: add(tap.vhosts) }).collect()
}
