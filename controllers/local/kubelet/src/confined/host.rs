//! What a runner has of its host besides the programs of the system: itself, QEMU wherever it is, kernel and guest program, devices, its log.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use neonvm_hypervisor::installation::found_in_path;
use neonvm_hypervisor::landlock::around;
use neonvm_hypervisor::plan::Architecture;
use neonvm_types::node_protocol::SOCKET_DIRECTORY;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::{MountFlags, mount};

use super::{make_directories, make_directory, show, show_device};
use crate::MachineFiles;

/// Where it is in a runner's root.
pub(crate) const PROGRAM: &str = "/run/neonvm/neonvm-runner";
pub(crate) const KERNEL: &str = "/run/neonvm/vmlinuz";
/// Beside the kernel, where the runner looks for it.
const INITRAMFS: &str = "/run/neonvm/initramfs.cpio";
pub(crate) const GUEST: &str = "/run/neonvm/guest";
/// Directory of the container's log.
pub(crate) const LOG: &str = "/run/neonvm/log";
pub(crate) const TERMINATION_LOG: &str = "/dev/termination-log";

/// Programs and libraries beyond those that a command sees.
const PROGRAMS: [&str; 3] = ["/opt", "/nix/store", "/gnu/store"];
/// By it QEMU knows the size of huge pages, which the size of the guest's memory follows.
const PAGES: &str = "/sys/kernel/mm";
/// What QEMU uses, where the host has it: as the user's own.
const DEVICES: [&str; 3] = ["kvm", "vhost-net", "userfaultfd"];
/// Modes that every user needs of a file that is read, or executed.
const READ: u32 = 0o004;
const EXECUTE: u32 = 0o005;

/// A file or directory of the host in a runner's root.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    from: PathBuf,
    to: PathBuf,
    writable: bool,
}

/// What a runner has of its host.
#[derive(Debug, Default)]
pub(crate) struct Host {
    shown: Vec<Shown>,
    /// Directory of QEMU, if it may be none of the variable `PATH` there.
    programs: Option<PathBuf>,
}

impl Host {
    /// For a node with this program and these files. `spare`: an existing directory for copies of those that other users may not read.
    ///
    /// # Errors
    /// If a copy cannot be made.
    pub(crate) fn new(
        program: &Path,
        machine: &MachineFiles,
        service: &Path,
        spare: &Path,
    ) -> io::Result<Self> {
        let mut host = Self::default();
        host.file(program, PROGRAM, EXECUTE, spare)?;
        if let Some(kernel) = &machine.kernel {
            host.file(kernel, KERNEL, READ, spare)?;
            let beside = kernel.with_file_name("initramfs.cpio");
            host.file(machine.initramfs.as_ref().unwrap_or(&beside), INITRAMFS, READ, spare)?;
        }
        if let Some(guest) = &machine.guest {
            host.file(guest, GUEST, READ, spare)?;
        }
        host.add(service.to_owned(), SOCKET_DIRECTORY, false);
        let same = PROGRAMS.iter().chain(&[PAGES]).map(PathBuf::from);
        let qemu = Architecture::native().and_then(|native| found_in_path(native.program()));
        let near = qemu.as_deref().map(around).unwrap_or_default();
        // The way there may lead through directories that are not shown.
        let itself = qemu.and_then(|program| fs::canonicalize(program).ok());
        let directory = itself.as_deref().and_then(Path::parent).filter(|path| !path.starts_with("/usr"));
        host.programs = directory.map(Path::to_owned);
        for path in same.chain(near) {
            host.add(path.clone(), path, false);
        }
        Ok(host)
    }

    /// Shows something at another path.
    pub(crate) fn add(&mut self, from: PathBuf, to: impl Into<PathBuf>, writable: bool) {
        self.shown.push(Shown { from, to: to.into(), writable });
    }

    /// A file, or a copy of it that every user may read. One that is missing is not shown: the runner names it.
    fn file(&mut self, from: &Path, to: &str, mode: u32, spare: &Path) -> io::Result<()> {
        let Ok(found) = fs::metadata(from) else { return Ok(()) };
        let mut from = fs::canonicalize(from)?;
        if found.mode() & mode != mode {
            let copy = spare.join(Path::new(to).file_name().unwrap_or_default());
            crate::files::remove(&copy)?;
            fs::copy(&from, &copy)?;
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o400 | mode))?;
            from = copy;
        }
        self.add(from, to, false);
        Ok(())
    }

    /// The variable `PATH` by which QEMU is found there.
    pub(crate) fn search(&self, path: &str) -> OsString {
        let own = self.programs.iter().cloned();
        let all = own.chain(std::env::split_paths(path));
        std::env::join_paths(all).unwrap_or_else(|_| path.into())
    }

    /// Shows all of it below `base`, for this user.
    pub(super) fn show(&self, base: &Path, user: u32) -> io::Result<()> {
        for Shown { from, to, writable } in &self.shown {
            if !from.exists() {
                continue;
            }
            let parent = make_directories(base, to.parent().unwrap_or(to))?;
            show(from, &parent.join(to.file_name().unwrap_or_default()), *writable)?;
        }
        // Beside what is seen: devices work on no other file system here.
        let twins = base.with_file_name("devices");
        make_directory(&twins)?;
        mount(c"tmpfs", &*twins, c"tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, c"mode=0755,size=64k")?;
        for name in DEVICES {
            device(name, &twins, base, user)?;
        }
        Ok(())
    }
}

/// A device of the host as a file that belongs to the user: the host's own belongs to root and to a group of the host.
fn device(name: &str, twins: &Path, base: &Path, user: u32) -> io::Result<()> {
    let (from, to) = (Path::new("/dev").join(name), base.join("dev").join(name));
    let found = match fs::metadata(&from) {
        Ok(found) if found.file_type().is_char_device() => found,
        _ => return Ok(()),
    };
    let twin = twins.join(name);
    match mknodat(CWD, &twin, FileType::CharacterDevice, Mode::from_raw_mode(0o600), found.rdev()) {
        // In a container that may make no devices the host's has to do.
        Err(rustix::io::Errno::PERM) => return show_device(&from, &to),
        made => made?,
    }
    chown(&twin, Some(user), Some(user))?;
    show_device(&twin, &to)
}
