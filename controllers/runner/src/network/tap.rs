//! A tap device, opened for QEMU. The only system call of this crate that the compiler cannot check is here.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;

use super::Error;

/// `TUNSETIFF` of `linux/if_tun.h`: `_IOW('T', 202, int)`.
const TUNSETIFF: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<std::ffi::c_int>(b'T', 202);
/// Flags of `linux/if_tun.h`: ethernet frames, no header of packet information, with the virtio header.
const TAP: u16 = 0x0002;
const NO_PACKET_INFORMATION: u16 = 0x1000;
const VIRTIO_HEADER: u16 = 0x4000;

/// `struct ifreq` of `net/if.h` as far as this call reads it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// An open tap device; it vanishes when the last descriptor is closed.
#[derive(Debug)]
pub(crate) struct Tap(pub(crate) OwnedFd);

impl Tap {
    /// Makes the device in the network namespace of this process.
    pub(crate) fn open(device: &str) -> Result<Self, Error> {
        let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun");
        let file =
            file.map_err(|source| Error::System { what: "cannot open /dev/net/tun".into(), source })?;
        let mut name = [0; 16];
        // The last byte stays zero.
        for (to, from) in name.iter_mut().zip(device.bytes().take(15)) {
            *to = from;
        }
        let flags = TAP | NO_PACKET_INFORMATION | VIRTIO_HEADER;
        attach(&file, InterfaceRequest { name, flags, rest: [0; 22] })
            .map_err(|source| Error::System { what: format!("cannot make the device {device}"), source })?;
        Ok(Self(file.into()))
    }
}

#[expect(unsafe_code, reason = "an ioctl without a safe wrapper")]
fn attach(file: &File, request: InterfaceRequest) -> std::io::Result<()> {
    // SAFETY: TUNSETIFF reads a `struct ifreq`, which the request is laid out as, and keeps no pointer to it.
    unsafe {
        let setter = rustix::ioctl::Setter::<TUNSETIFF, InterfaceRequest>::new(request);
        rustix::ioctl::ioctl(file, setter)?;
    }
    Ok(())
}
