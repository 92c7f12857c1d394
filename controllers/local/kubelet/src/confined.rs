//! A root of the pod's own for commands that are not ours: what a container of the runner's image would hold, read-only, and nothing
//! else of the host. The command is the user of the VM's QEMU, without capabilities.
//!
//! It is made for each command, by a thread that starts the command and ends: in mounts that no other process sees,
//! left for good by pivot_root, and in a namespace of processes, so that QEMU, which runs as the same user, is out of
//! reach. By hand, because bubblewrap, which does much the same, would be a package more on every host, and joins
//! neither cgroups nor networks.

mod tree;

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};
use rustix::process::{chdir, chroot, pivot_root};

use crate::sys::{self, ProcessPlacement};

/// Where the user is at home, and the only place to write to: nothing of it is left when the command has ended.
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
/// What a command may write.
const SCRATCH: &std::ffi::CStr = c"mode=1777,size=64m";

/// Options of what is mounted.
const PLAIN: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
/// The directory of all that the command sees, in an otherwise empty root.
const INSIDE: &str = "root";

/// How long files in the root may be held open by others.
const BUSY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Root {
    /// An empty directory, which it is mounted at.
    pub(crate) base: PathBuf,
    /// The pod's files as the runner sees them.
    pub(crate) pod: PathBuf,
    /// `hosts`, `resolv.conf` and `ssh_config` of the pod.
    pub(crate) etc: PathBuf,
    /// User and group of its commands.
    pub(crate) user: u32,
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
        let inside = Self {
            base: self.base.join(INSIDE),
            pod: self.pod.clone(),
            etc: self.etc.clone(),
            user: self.user,
        };
        inside.fill()?;
        let swap = || -> rustix::io::Result<()> {
            chdir(&*self.base)?;
            // The old root comes to lie upon the new one, and is taken away from there.
            pivot_root(c".", c".")?;
            unmount(c".", UnmountFlags::DETACH)?;
            // A process whose root is not that of its mounts cannot make user namespaces, in which it would have all capabilities again.
            // It has none to leave this root.
            chroot(INSIDE)?;
            chdir(c"/")
        };
        swap().map_err(wrapped("the way there"))
    }

    /// Makes what the command sees.
    fn fill(&self) -> io::Result<()> {
        make_directory(&self.base)?;
        mount(c"tmpfs", &*self.base, c"tmpfs", PLAIN, SKELETON).map_err(wrapped("its root"))?;
        self.system().map_err(named("programs of the host"))?;
        self.etc().map_err(named("its /etc"))?;
        self.devices().map_err(named("its /dev"))?;
        tree::show_all(&self.pod, &self.base, self.user).map_err(named("files of the pod"))?;
        // Filled by the first process there.
        self.directory("proc")?;
        let tmp = self.directory("tmp")?;
        mount(c"tmpfs", &*tmp, c"tmpfs", PLAIN, SCRATCH).map_err(wrapped("its /tmp"))?;
        self.close().map_err(named("its root read-only"))
    }

    /// The first process there. It ends when this node does, or has no more use for it, and everything else there with it. The command
    /// itself is not the first, because the kernel keeps signals from that.
    pub(crate) fn keeper(&self) -> Command {
        let mut command = Command::new("/bin/cat");
        command.env_clear().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let place = ProcessPlacement {
            directory: c"/".to_owned(),
            user: Some(self.user),
            is_first: true,
            ..ProcessPlacement::default()
        };
        sys::place(&mut command, place);
        command
    }

    /// Nothing more is made there. A child that another thread starts holds what was just written open until its program runs.
    fn close(&self) -> io::Result<()> {
        let flags = MountFlags::BIND | MountFlags::RDONLY | PLAIN;
        let until = Instant::now() + BUSY;
        loop {
            match mount_remount(&*self.base, flags, c"") {
                Err(Errno::BUSY) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                other => return Ok(other?),
            }
        }
    }

    fn directory(&self, path: &str) -> io::Result<PathBuf> {
        let path = self.base.join(path);
        make_directory(&path)?;
        Ok(path)
    }

    fn system(&self) -> io::Result<()> {
        for name in SYSTEM {
            let (from, to) = (Path::new("/").join(name), self.base.join(name));
            match fs::symlink_metadata(&from) {
                Ok(found) if found.is_symlink() => symlink(fs::read_link(&from)?, &to)?,
                Ok(_) => show(&from, &to)?,
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn etc(&self) -> io::Result<()> {
        for directory in ["etc", "etc/ssl", "etc/ssh"] {
            self.directory(directory)?;
        }
        let own = [("hosts", "hosts"), ("resolv.conf", "resolv.conf"), ("ssh_config", "ssh/ssh_config")];
        let own = own.map(|(name, at)| (self.etc.join(name), at));
        let hosts = ETC.map(|name| (Path::new("/etc").join(name), name));
        for (from, at) in own.into_iter().chain(hosts) {
            if from.exists() {
                show(&from, &self.base.join("etc").join(at))?;
            }
        }
        let user = self.user;
        let users = format!(
            "root:x:0:0:root:/:/usr/sbin/nologin\nneonvm:x:{user}:{user}:user of the VM:{HOME}:/bin/sh\n\
             nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
        );
        let groups = format!("root:x:0:\nneonvm:x:{user}:\nnogroup:x:65534:\n");
        for (name, text) in [("passwd", users), ("group", groups)] {
            let path = self.base.join("etc").join(name);
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        }
        Ok(())
    }

    fn devices(&self) -> io::Result<()> {
        let directory = self.directory("dev")?;
        for name in DEVICES {
            let (from, to) = (Path::new("/dev").join(name), directory.join(name));
            fs::File::create(&to)?;
            mount_bind(&*from, &*to)?;
            mount_remount(&*to, MountFlags::BIND | MountFlags::NOSUID | MountFlags::NOEXEC, c"")?;
        }
        for (name, to) in STREAMS {
            symlink(to, directory.join(name))?;
        }
        Ok(())
    }
}

/// A directory that every user can read, whatever the node's own files are made like.
fn make_directory(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        fs::create_dir(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Shows a file or directory at another path, read-only, without devices and set-user-ID bits.
fn show(from: &Path, to: &Path) -> io::Result<()> {
    if fs::metadata(from)?.is_dir() {
        make_directory(to)?;
    } else {
        fs::File::create(to)?;
    }
    let target = CString::new(to.as_os_str().as_bytes()).map_err(io::Error::other)?;
    mount_bind(from, &*target)?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | PLAIN;
    Ok(mount_remount(&*target, flags, c"")?)
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
