//! A root of the pod's own: what a container of the runner's image would hold, and nothing else of the host. Who is in it is a user without
//! capabilities: the runner one of the pod's own, commands that are not ours another one, for which all is read-only.
//!
//! It is made for each of them, by a thread that starts the process and ends: in mounts that no other process sees,
//! left for good by pivot_root, and in a namespace of processes, so that the runner and its QEMU are out of a command's
//! reach. By hand, because bubblewrap, which does much the same, would be a package more on every host, and joins
//! neither cgroups nor networks.

mod host;
mod tree;

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};
use rustix::process::{chdir, chroot, pivot_root};

use crate::mount::Mount;
use crate::sys::{self, ProcessPlacement, User};
pub(crate) use host::{GUEST, Host, KERNEL, LOG, PROGRAM, TERMINATION_LOG};

/// Where the user is at home, and the only place where a command writes: nothing of it is left when it has ended.
pub(crate) const HOME: &str = "/tmp";

/// Directories of programs and libraries: links into `usr` on most hosts.
const SYSTEM: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];
/// What programs need from the host's `/etc`: no names of users, no keys.
const ETC: [&str; 10] = [
    "alternatives",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "os-release",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
];
/// Devices that do nothing to the host.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const STREAMS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];
/// Holds directories and links only.
const SKELETON: &std::ffi::CStr = c"mode=0755,size=4m";
/// What may be written at [`HOME`].
const SCRATCH: &std::ffi::CStr = c"mode=1777,size=64m";

/// Options of what is mounted.
const PLAIN: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// How long files in the root may be held open by others.
const BUSY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Root {
    /// An empty directory, which it is mounted at.
    pub(crate) base: PathBuf,
    /// Where the pod's volumes are, shortest path first.
    pub(crate) mounts: Vec<Mount>,
    /// `hosts`, `resolv.conf` and `ssh_config` of the pod.
    pub(crate) etc: PathBuf,
    /// User and group of who is in it.
    pub(crate) user: u32,
    /// What the runner has of the host besides; `None`: it is a command's.
    pub(crate) host: Option<Host>,
}

impl Root {
    /// Makes it, and puts this thread there, which must end soon: it sees nothing else any more.
    ///
    /// # Errors
    /// The first step that failed.
    pub(crate) fn enter(&self) -> io::Result<()> {
        sys::leave().map_err(named("a namespace for it: the node needs CAP_SYS_ADMIN"))?;
        // A pod of an earlier version has no such directory.
        crate::files::directory(&self.base, 0o700).map_err(named("its directory"))?;
        mount(c"tmpfs", &*self.base, c"tmpfs", PLAIN, SKELETON).map_err(wrapped("its root"))?;
        self.fill(&self.base.join(OsStr::from_bytes(sys::INSIDE.to_bytes())))?;
        let swap = || -> rustix::io::Result<()> {
            chdir(&*self.base)?;
            // The old root comes to lie upon the new one, and is taken away from there.
            pivot_root(c".", c".")?;
            unmount(c".", UnmountFlags::DETACH)?;
            // A process whose root is not that of its mounts cannot make user namespaces, in which it would have all capabilities again.
            // It has none to leave this root.
            chroot(sys::INSIDE)?;
            chdir(c"/")
        };
        swap().map_err(wrapped("the way there"))
    }

    /// Makes what is seen in it.
    fn fill(&self, base: &Path) -> io::Result<()> {
        make_directory(base)?;
        mount(c"tmpfs", base, c"tmpfs", PLAIN, SKELETON).map_err(wrapped("its root"))?;
        system(base).map_err(named("programs of the host"))?;
        self.etc(base).map_err(named("its /etc"))?;
        devices(base).map_err(named("its /dev"))?;
        if let Some(host) = &self.host {
            host.show(base, self.user).map_err(named("files of the host"))?;
        }
        tree::show_all(self, base).map_err(named("files of the pod"))?;
        // Filled by the first process there.
        directory(base, "proc")?;
        let tmp = directory(base, "tmp")?;
        mount(c"tmpfs", &*tmp, c"tmpfs", PLAIN, SCRATCH).map_err(wrapped("its /tmp"))?;
        close(base, MountFlags::BIND | MountFlags::RDONLY | PLAIN).map_err(named("its root read-only"))
    }

    /// The first process there. It ends when this node does, or has no more use for it, and everything else there with it. The command
    /// itself is not the first, because the kernel keeps signals from that.
    pub(crate) fn keeper(&self) -> Command {
        let mut command = Command::new("/bin/cat");
        command.env_clear().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let place = ProcessPlacement {
            directory: c"/".to_owned(),
            user: Some(User { id: self.user, groups: Vec::new(), most_processes: None }),
            is_first: true,
            ..ProcessPlacement::default()
        };
        sys::place(&mut command, place);
        command
    }

    fn etc(&self, base: &Path) -> io::Result<()> {
        for name in ["etc", "etc/ssl", "etc/ssh"] {
            directory(base, name)?;
        }
        let own = [("hosts", "hosts"), ("resolv.conf", "resolv.conf"), ("ssh_config", "ssh/ssh_config")];
        let own = own.map(|(name, at)| (self.etc.join(name), at));
        let hosts = ETC.map(|name| (Path::new("/etc").join(name), name));
        for (from, at) in own.into_iter().chain(hosts) {
            if from.exists() {
                show(&from, &base.join("etc").join(at), false)?;
            }
        }
        let user = self.user;
        let users = format!(
            "root:x:0:0:root:/:/usr/sbin/nologin\nneonvm:x:{user}:{user}:user of the VM:{HOME}:/bin/sh\n\
             nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
        );
        let groups = format!("root:x:0:\nneonvm:x:{user}:\nnogroup:x:65534:\n");
        for (name, text) in [("passwd", users), ("group", groups)] {
            let path = base.join("etc").join(name);
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        }
        Ok(())
    }
}

/// Nothing more is made there. A child that another thread starts holds what was just written open until its program runs.
fn close(path: &Path, flags: MountFlags) -> io::Result<()> {
    let until = Instant::now() + BUSY;
    loop {
        match mount_remount(path, flags, c"") {
            Err(Errno::BUSY) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            other => return Ok(other?),
        }
    }
}

fn directory(base: &Path, path: &str) -> io::Result<PathBuf> {
    let path = base.join(path);
    make_directory(&path)?;
    Ok(path)
}

fn system(base: &Path) -> io::Result<()> {
    for name in SYSTEM {
        let (from, to) = (Path::new("/").join(name), base.join(name));
        match fs::symlink_metadata(&from) {
            Ok(found) if found.is_symlink() => symlink(fs::read_link(&from)?, &to)?,
            Ok(_) => show(&from, &to, false)?,
            Err(_) => {}
        }
    }
    Ok(())
}

fn devices(base: &Path) -> io::Result<()> {
    let directory = directory(base, "dev")?;
    for name in DEVICES {
        show_device(&Path::new("/dev").join(name), &directory.join(name))?;
    }
    for (name, to) in STREAMS {
        symlink(to, directory.join(name))?;
    }
    Ok(())
}

/// Shows a device as it is.
fn show_device(from: &Path, to: &Path) -> io::Result<()> {
    fs::File::create(to)?;
    mount_bind(from, to)?;
    Ok(mount_remount(to, MountFlags::BIND | MountFlags::NOSUID | MountFlags::NOEXEC, c"")?)
}

/// A directory that every user can read, whatever the node's own files are made like.
fn make_directory(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        fs::create_dir(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// The same with those above it.
fn make_directories(base: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut made = base.to_path_buf();
    for part in path.components().filter(|part| matches!(part, Component::Normal(_))) {
        made.push(part);
        make_directory(&made)?;
    }
    Ok(made)
}

/// Shows a file or directory at another path, without devices and set-user-ID bits; unless `writable`, read-only.
fn show(from: &Path, to: &Path, writable: bool) -> io::Result<()> {
    if fs::metadata(from)?.is_dir() {
        make_directory(to)?;
    } else if !to.exists() {
        fs::File::create(to)?;
    }
    let target = CString::new(to.as_os_str().as_bytes()).map_err(io::Error::other)?;
    mount_bind(from, &*target)?;
    let flags = MountFlags::BIND | PLAIN;
    Ok(mount_remount(&*target, if writable { flags } else { flags | MountFlags::RDONLY }, c"")?)
}

fn named(what: &str) -> impl FnOnce(io::Error) -> io::Error {
    let what = format!("cannot make {what}");
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn wrapped(what: &str) -> impl FnOnce(Errno) -> io::Error {
    let named = named(what);
    move |error| named(error.into())
}

#[cfg(test)]
mod tests;
