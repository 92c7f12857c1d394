//! What a child may open by name (landlock(7)): programs and libraries of the system, and what it is given. A runner and its QEMU are one
//! user, so modes of files do not keep QEMU from the runner's; this does, wherever the kernel has it. It needs no right.
#![expect(unsafe_code, reason = "system calls that no safe library has")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Mode, OFlags};

/// `LANDLOCK_ACCESS_FS_…` of `linux/landlock.h`, in the order of their bits.
const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIRECTORY: u64 = 1 << 3;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_SOCKET: u64 = 1 << 9;
const TRUNCATE: u64 = 1 << 14;
const IOCTL: u64 = 1 << 15;
/// Those that a file can have that is no directory.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL;
/// `LANDLOCK_CREATE_RULESET_VERSION`.
const VERSION: u32 = 1;
/// `LANDLOCK_RULE_PATH_BENEATH`.
const BENEATH: c_int = 1;

/// Programs and libraries, and what the kernel reports.
const SYSTEM: [&str; 13] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/proc",
    "/sys",
    "/etc/alternatives",
];
/// What programs need of `/etc`.
const ETC: [&str; 18] = [
    "/etc/crypto-policies",
    "/etc/gai.conf",
    "/etc/gnutls",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/protocols",
    "/etc/qemu",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl",
];
/// Devices that do nothing to the host.
const DEVICES: [&str; 7] =
    ["/dev/full", "/dev/kvm", "/dev/null", "/dev/random", "/dev/urandom", "/dev/userfaultfd", "/dev/zero"];
/// Directories beside that of a program which is not among those of the system.
const BESIDE: [&str; 5] = ["lib", "lib64", "libexec", "share", "etc"];

/// What a child may use besides programs, libraries and devices of the system.
#[derive(Debug, Default)]
pub struct Allowed<'a> {
    /// The program that it executes.
    pub program: Option<&'a Path>,
    /// Files that it opens again through its descriptors.
    pub files: Vec<BorrowedFd<'a>>,
    /// A directory in which it makes and removes sockets.
    pub sockets: Option<BorrowedFd<'a>>,
    /// A directory in which it reads and writes files that are there.
    pub store: Option<BorrowedFd<'a>>,
    /// Directories that it reads.
    pub read: Vec<PathBuf>,
    /// Directories in which it does anything.
    pub write: Vec<PathBuf>,
    /// Whether it uses TCP.
    pub tcp: bool,
}

/// Rules for a child, in force from [`Self::enter`] on, for good.
#[derive(Debug)]
pub struct Domain(OwnedFd);

/// `struct landlock_ruleset_attr`.
#[repr(C)]
struct Handled {
    files: u64,
    network: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct Rule {
    rights: u64,
    directory: c_int,
}

/// What each version of the interface restricts: rights on files, TCP, and signals and abstract sockets to processes outside.
fn handled(version: u32, tcp: bool) -> Handled {
    let count = match version {
        0 | 1 => 13,
        2 => 14,
        3 | 4 => 15,
        _ => 16,
    };
    Handled {
        files: (1 << count) - 1,
        network: if version >= 4 && !tcp { 3 } else { 0 },
        scoped: if version >= 6 { 3 } else { 0 },
    }
}

/// Version of the interface; 0: the kernel has none, or it is switched off.
#[must_use]
pub fn version() -> u32 {
    // SAFETY: without attributes the kernel only returns a number.
    let found = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<Handled>(), 0_usize, VERSION)
    };
    u32::try_from(found).unwrap_or(0)
}

impl Domain {
    /// Rules for a child; `None` if the kernel has no such thing.
    ///
    /// # Errors
    /// If the kernel refuses a rule.
    pub fn new(allowed: &Allowed<'_>) -> io::Result<Option<Self>> {
        let version = version();
        if version == 0 {
            return Ok(None);
        }
        let handled = handled(version, allowed.tcp);
        // SAFETY: the kernel reads the attributes, which live until it returns. Versions that know fewer fields take zeros for the rest.
        let file = unsafe {
            libc::syscall(libc::SYS_landlock_create_ruleset, &raw const handled, size_of::<Handled>(), 0_u32)
        };
        let file =
            c_int::try_from(file).ok().filter(|file| *file >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel has opened the descriptor for this call.
        let domain = Self(unsafe { OwnedFd::from_raw_fd(file) });
        domain.fill(allowed, handled.files)?;
        Ok(Some(domain))
    }

    fn fill(&self, allowed: &Allowed<'_>, handled: u64) -> io::Result<()> {
        let read = (EXECUTE | READ_FILE | READ_DIRECTORY) & handled;
        let device = (READ_FILE | WRITE_FILE | IOCTL) & handled;
        let program = allowed.program.map(around).unwrap_or_default();
        let system = SYSTEM.iter().chain(&ETC).map(PathBuf::from).chain(program);
        for path in system.chain(allowed.read.iter().cloned()) {
            self.path(&path, read)?;
        }
        for path in DEVICES {
            self.path(Path::new(path), device)?;
        }
        for path in &allowed.write {
            self.path(path, handled)?;
        }
        for file in &allowed.files {
            self.rule(file.as_raw_fd(), READ_FILE & handled)?;
        }
        if let Some(directory) = &allowed.sockets {
            let rights = MAKE_SOCKET | REMOVE_FILE | READ_DIRECTORY | READ_FILE | WRITE_FILE;
            self.rule(directory.as_raw_fd(), rights & handled)?;
        }
        if let Some(directory) = &allowed.store {
            self.rule(directory.as_raw_fd(), (READ_FILE | WRITE_FILE | TRUNCATE) & handled)?;
        }
        Ok(())
    }

    /// Nothing if it is not there.
    fn path(&self, path: &Path, rights: u64) -> io::Result<()> {
        let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let Ok(file) = opened else { return Ok(()) };
        let is_directory = rustix::fs::fstat(&file)
            .is_ok_and(|found| rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir());
        self.rule(file.as_raw_fd(), if is_directory { rights } else { rights & OF_FILES })
    }

    fn rule(&self, directory: RawFd, rights: u64) -> io::Result<()> {
        let rule = Rule { rights, directory };
        // SAFETY: the kernel reads the rule, which lives until it returns.
        let done = unsafe {
            libc::syscall(libc::SYS_landlock_add_rule, self.0.as_raw_fd(), BENEATH, &raw const rule, 0_u32)
        };
        match done {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                // A file in memory: nothing restricts it.
                error if error.raw_os_error() == Some(libc::EBADFD) => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Puts the calling thread there, and what it executes and starts. System calls only: fit for a child between fork and exec. The
    /// thread must have given up new privileges.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn enter(&self) -> io::Result<()> {
        // SAFETY: takes numbers only.
        match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.0.as_raw_fd(), 0_u32) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Makes a command execute its program in a domain, without new privileges.
pub fn before_exec(command: &mut Command, domain: Domain) {
    let enter = move || {
        rustix::thread::set_no_new_privs(true)?;
        domain.enter()
    };
    // SAFETY: two system calls, which allocate nothing and take no lock.
    unsafe { command.pre_exec(enter) };
}

/// Where the files of a program are that lies elsewhere than those of the system; its own directory first.
#[must_use]
pub fn around(program: &Path) -> Vec<PathBuf> {
    let program = std::fs::canonicalize(program).unwrap_or_else(|_| program.to_owned());
    let Some(directory) = program.parent() else { return Vec::new() };
    if SYSTEM.iter().any(|system| directory.starts_with(system)) {
        return Vec::new();
    }
    let beside = directory.parent().into_iter().flat_map(|prefix| BESIDE.map(|name| prefix.join(name)));
    std::iter::once(directory.to_owned()).chain(beside).collect()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::process::Stdio;

    use neonvm_test_support::{Missing, Need, need};

    use super::*;

    fn landlock() -> Need {
        match version() {
            0 => Err(Missing::unavailable("this kernel has no Landlock")),
            _ => Ok(()),
        }
    }

    /// Whether a script succeeds within a domain, and what it prints.
    fn run(script: &str, allowed: &Allowed<'_>) -> (bool, String) {
        let domain = Domain::new(allowed).unwrap().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::null()).stderr(Stdio::null());
        before_exec(&mut command, domain);
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn a_child_opens_what_it_is_allowed_and_nothing_else() {
        need!(landlock());
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["mine", "secret"] {
            std::fs::create_dir(path(name)).unwrap();
            std::fs::write(path(name).join("file"), name).unwrap();
        }
        let allowed = || Allowed { write: vec![path("mine")], ..Allowed::default() };
        let (mine, secret) = (path("mine/file"), path("secret/file"));
        assert_eq!(run(&format!("cat {}", mine.display()), &allowed()), (true, "mine".into()));
        let write = format!("echo more > {0} && mkdir {0}.d && rmdir {0}.d", mine.display());
        assert!(run(&write, &allowed()).0);
        for script in [
            format!("cat {}", secret.display()),
            format!("ls {}", path("secret").display()),
            format!("echo x > {}", secret.display()),
            format!("mv {} {}", mine.display(), path("secret/other").display()),
            format!("ln {} {}/link", secret.display(), path("mine").display()),
            "echo x > /etc/neonvm-test".into(),
            "mkdir /usr/neonvm-test".into(),
        ] {
            assert!(!run(&script, &allowed()).0, "{script}");
        }
        let read = Allowed { read: vec![path("mine")], ..Allowed::default() };
        assert!(run(&format!("cat {}", mine.display()), &read).0);
        assert!(!run(&format!("echo x > {}", mine.display()), &read).0);
    }

    /// A descriptor that was open before stays; it is opened again only if that is allowed.
    #[test]
    fn files_of_descriptors_are_opened_again_only_if_that_is_allowed() {
        need!(landlock());
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("kernel"), "kernel").unwrap();
        let file = std::fs::File::open(directory.path().join("kernel")).unwrap();
        let copy = rustix::io::dup(&file).unwrap();
        rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty()).unwrap();
        let script = format!("cat /dev/fd/{}", copy.as_raw_fd());
        let with = Allowed { files: vec![file.as_fd()], ..Allowed::default() };
        assert_eq!(run(&script, &with), (true, "kernel".into()));
        assert!(!run(&script, &Allowed::default()).0);
    }

    #[test]
    fn a_child_reaches_no_process_outside() {
        need!(landlock());
        let own = std::process::id();
        assert!(run(&format!("cat /proc/{own}/status"), &Allowed::default()).0);
        // Root may still read `environ` and `maps` here, by its right to measure (CAP_PERFMON); a runner's QEMU has no such right.
        assert!(!run(&format!("head -c 1 /proc/{own}/mem"), &Allowed::default()).0);
        if version() >= 6 {
            assert!(!run(&format!("kill -0 {own}"), &Allowed::default()).0);
        }
    }

    #[test]
    fn each_version_restricts_what_it_knows() {
        let of = |version, tcp| {
            let Handled { files, network, scoped } = handled(version, tcp);
            (files.count_ones(), network, scoped)
        };
        assert_eq!([of(1, false), of(2, false), of(3, false)], [(13, 0, 0), (14, 0, 0), (15, 0, 0)]);
        assert_eq!([of(4, false), of(5, false), of(6, false)], [(15, 3, 0), (16, 3, 0), (16, 3, 3)]);
        assert_eq!((of(4, true), of(99, true)), ((15, 0, 0), (16, 0, 3)));
    }

    #[test]
    fn files_around_a_program_are_found() {
        assert!(around(Path::new("/usr/bin/qemu-system-x86_64")).is_empty());
        let found = around(Path::new("/srv/qemu/bin/qemu-system-x86_64"));
        assert_eq!(found[0], Path::new("/srv/qemu/bin"));
        assert!(found.contains(&"/srv/qemu/share".into()) && !found.contains(&"/srv/qemu".into()));
    }
}
