//! The network namespace of a pod, by a process of the pod.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Error;
use super::resolver::{self, Resolver};

/// Bytes of a `resolv.conf` that are read.
const LONGEST: u64 = 64 << 10;

/// A network namespace, and the root of the file system that belongs to it.
#[derive(Debug)]
pub(crate) struct Namespace {
    network: OwnedFd,
    root: OwnedFd,
}

impl Namespace {
    /// That of a process, which must not be `own`. The caller checks afterwards that the process still lives: then they were its own.
    ///
    /// # Errors
    /// If the process is gone or has the network of the node.
    pub(crate) fn of(pid: i32, own: Option<&Path>) -> Result<Self, Error> {
        let open = |path: &Path| -> Result<(OwnedFd, (u64, u64)), Error> {
            let failed = || Error::system("cannot open a network namespace");
            let file = File::open(path).map_err(failed())?;
            let found = file.metadata().map_err(failed())?;
            Ok((file.into(), (found.dev(), found.ino())))
        };
        let (network, number) = open(Path::new(&format!("/proc/{pid}/ns/net")))?;
        // Some nodes show their namespace to no process: there the vm-controller alone keeps such pods away.
        let is_own = own.and_then(|own| open(own).ok()).is_some_and(|(_, found)| found == number);
        if is_own {
            return Err(Error::HostNetwork);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(format!("/proc/{pid}/root"), flags, Mode::empty());
        let root = root.map_err(|error| Error::system("cannot open the root of the pod")(error.into()))?;
        Ok(Self { network, root })
    }

    /// How names are resolved in the pod; nothing if its file cannot be read.
    pub(super) fn resolver(&self) -> Resolver {
        let read = || -> io::Result<String> {
            // Links are those of the pod, and lead nowhere else.
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            let file = openat2(&self.root, "etc/resolv.conf", flags, Mode::empty(), inside)?;
            let mut text = String::new();
            let file = File::from(file);
            if file.metadata()?.is_file() {
                file.take(LONGEST).read_to_string(&mut text)?;
            }
            Ok(text)
        };
        resolver::parse(&read().unwrap_or_default())
    }

    /// Does something in it, on a thread that ends with the work: no other work can find itself in a strange namespace.
    pub(super) fn inside<T: Send + 'static>(
        self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let failed = || Error::system("cannot enter the network namespace of the pod");
        let inside = move || {
            move_into_link_name_space(self.network.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|error| failed()(error.into()))?;
            work()
        };
        let thread =
            std::thread::Builder::new().name("in-namespace".into()).spawn(inside).map_err(failed())?;
        thread.join().map_err(|_| failed()(io::Error::other("internal: panic")))?
    }
}
