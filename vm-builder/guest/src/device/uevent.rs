//! The kernel's announcements of devices (kobject uevents over netlink).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// The group to which the kernel itself sends; others are user space's.
const KERNEL_GROUP: u32 = 1;
/// The kernel's own limit of an announcement (`UEVENT_BUFFER_SIZE`) with room for its head.
const LARGEST: usize = 8192;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uevent {
    /// `add`, `remove`, `change` …
    pub action: String,
    /// `block`, `cpu`, `net`, `input`, `virtio-ports` …
    pub subsystem: String,
    /// Path below `/sys`, starting with a slash.
    pub path: String,
    pub variables: BTreeMap<String, String>,
}

impl Uevent {
    /// Reads `action@path`, NUL, and `KEY=value` each followed by NUL. None if it is no announcement of the kernel.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let head = fields.next()?;
        let (action, path) = head.split_once('@')?;
        let variables: BTreeMap<String, String> = fields
            .filter_map(|field| field.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())))
            .collect();
        let subsystem = variables.get("SUBSYSTEM").cloned().unwrap_or_default();
        Some(Self { action: action.to_owned(), subsystem, path: path.to_owned(), variables })
    }

    /// The last part of the path: the device's own name.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// Where announcements arrive; reading never blocks.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Announcements from now on.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(KOBJECT_UEVENT))?;
        bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
        Ok(Self(socket))
    }

    pub fn descriptor(&self) -> &OwnedFd {
        &self.0
    }

    /// The next announcement, if there is one. `Ok(None)` means none is left; an overrun is a separate error and means
    /// that devices must be listed again.
    ///
    /// # Errors
    /// `ENOBUFS` when announcements were lost.
    pub fn next(&self) -> io::Result<Option<Uevent>> {
        let mut buffer = [0; LARGEST];
        loop {
            match recv(&self.0, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _)) => {
                    if let Some(event) = Uevent::parse(buffer.get(..length).unwrap_or_default()) {
                        return Ok(Some(event));
                    }
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_read() {
        let text =
            b"add@/devices/system/cpu/cpu1\0ACTION=add\0DEVPATH=/devices/system/cpu/cpu1\0SUBSYSTEM=cpu\0SEQNUM=9\0";
        let event = Uevent::parse(text).unwrap();
        assert_eq!((event.action.as_str(), event.subsystem.as_str(), event.name()), ("add", "cpu", "cpu1"));
        assert_eq!(Uevent::parse(b"libudev\0\xfe\xed"), None);
    }
}
