//! A tap device, opened for QEMU: the node service makes it, the runner reads and writes frames beside QEMU during a migration.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// `TUNSETIFF` of `linux/if_tun.h`: `_IOW('T', 202, int)`.
const TUNSETIFF: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<std::ffi::c_int>(b'T', 202);
/// `TUNGETVNETHDRSZ` of `linux/if_tun.h`: `_IOR('T', 215, int)`.
const TUNGETVNETHDRSZ: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<std::ffi::c_int>(b'T', 215);
/// `TUNATTACHFILTER` and `TUNDETACHFILTER` of `linux/if_tun.h`: `_IOW('T', 213, struct sock_fprog)` and the same with 214.
const TUNATTACHFILTER: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<FilterProgram>(b'T', 213);
const TUNDETACHFILTER: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<FilterProgram>(b'T', 214);
/// Flags of `linux/if_tun.h`: ethernet frames, no header of packet information, with the virtio header.
const TAP: u16 = 0x0002;
const NO_PACKET_INFORMATION: u16 = 0x1000;
const VIRTIO_HEADER: u16 = 0x4000;

/// The file that all tap devices are made with.
const DEVICE: &str = "/dev/net/tun";

/// As QEMU sets it: a read without data returns an error.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
/// Longest frame with its header: the greatest segment that the kernel leaves whole, and room for both headers.
pub const LONGEST: usize = (64 << 10) + 256;

/// `struct ifreq` of `net/if.h` as far as this call reads it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// One instruction of a filter: `struct sock_filter` of `linux/filter.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    /// How many instructions are skipped if a comparison holds, and if not.
    pub jumps: (u8, u8),
    pub value: u32,
}

/// `struct sock_fprog` of `linux/filter.h`.
#[repr(C)]
struct FilterProgram {
    length: u16,
    instructions: *const Instruction,
}

/// An open tap device; it vanishes when the last descriptor is closed.
#[derive(Debug)]
pub struct Tap(pub OwnedFd);

impl Tap {
    /// Makes the device in the network namespace of this thread.
    ///
    /// # Errors
    /// Without the right to do so, or if there is a device of this name that another process has open.
    pub fn open(device: &str) -> io::Result<Self> {
        Self::open_by(Path::new(DEVICE), device)
    }

    /// The same by another path of the file that makes all tap devices.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_by(path: &Path, device: &str) -> io::Result<Self> {
        let named = |what: &str| {
            let what = what.to_owned();
            move |error: io::Error| io::Error::new(error.kind(), format!("cannot {what}: {error}"))
        };
        let file = OpenOptions::new().read(true).write(true).custom_flags(NONBLOCK).open(path);
        let file = file.map_err(named(&format!("open {}", path.display())))?;
        let mut name = [0; 16];
        // The last byte stays zero.
        for (to, from) in name.iter_mut().zip(device.bytes().take(15)) {
            *to = from;
        }
        let flags = TAP | NO_PACKET_INFORMATION | VIRTIO_HEADER;
        attach(&file, InterfaceRequest { name, flags, rest: [0; 22] })
            .map_err(named(&format!("make the device {device}")))?;
        Ok(Self(file.into()))
    }

    /// Another descriptor of the device.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn copy(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Sends an Ethernet frame as the guest would.
    ///
    /// # Errors
    /// Of the device.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // The header is all zero: no offload is left to do.
        let header = self.header()?;
        let mut bytes = vec![0; header];
        bytes.extend(frame);
        self.give_back(Frame { header, bytes })
    }

    /// A frame that waits for the guest; `None` if there is none.
    ///
    /// # Errors
    /// Of the device.
    pub fn receive(&self) -> io::Result<Option<Frame>> {
        let header = self.header()?;
        let mut bytes = vec![0; LONGEST];
        match rustix::io::read(&self.0, &mut bytes) {
            Ok(length) => {
                bytes.truncate(length);
                Ok(Some(Frame { header, bytes }))
            }
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a frame that was received, with what its header leaves to be done, as the guest would.
    ///
    /// # Errors
    /// Of the device.
    pub fn give_back(&self, frame: Frame) -> io::Result<()> {
        let frame = frame.with_header(self.header()?);
        match rustix::io::write(&self.0, &frame.bytes)? {
            written if written == frame.bytes.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Waits until a frame waits for the guest, and leaves it there.
    ///
    /// # Errors
    /// If the device cannot be waited for.
    pub async fn arrived(&self) -> io::Result<()> {
        let waited = watched(self.copy()?.0)?;
        waited.readable().await.map(drop)
    }

    /// From now on frames for the guest that the filter (a program of classic BPF over the Ethernet frame) gives no length are dropped by the
    /// kernel before they wait here. It replaces an earlier one.
    ///
    /// # Errors
    /// If the kernel does not take the program.
    pub fn filter(&self, program: &[Instruction]) -> io::Result<()> {
        let _ = self.unfilter();
        change_filter::<TUNATTACHFILTER>(&self.0, program)
    }

    /// Ends [`Self::filter`].
    ///
    /// # Errors
    /// Of the device.
    pub fn unfilter(&self) -> io::Result<()> {
        change_filter::<TUNDETACHFILTER>(&self.0, &[])
    }

    /// Length of the header before each frame, which QEMU may have changed.
    fn header(&self) -> io::Result<usize> {
        Ok(usize::try_from(header_length(&self.0)?).unwrap_or_default())
    }
}

/// An Ethernet frame with its virtio header.
#[derive(Debug)]
pub struct Frame {
    header: usize,
    bytes: Vec<u8>,
}

/// Length of the header of a frame that a packet socket has copied.
const COPIED: usize = 10;

impl Frame {
    /// A frame with its header, from a packet socket.
    pub fn copied(bytes: &[u8]) -> Self {
        Self { header: COPIED.min(bytes.len()), bytes: bytes.to_vec() }
    }

    /// The same with a header of another length: that of the device may have more fields, which are zero for a single frame.
    fn with_header(mut self, length: usize) -> Self {
        let more = length.saturating_sub(self.header);
        self.bytes.splice(self.header..self.header, std::iter::repeat_n(0, more));
        self.header += more;
        self
    }

    /// The frame itself.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(self.header..).unwrap_or_default()
    }

    pub fn set_sender(&mut self, hardware: [u8; 6]) {
        let sender = self.bytes.get_mut(self.header + 6..self.header + 12);
        if let Some(sender) = sender {
            sender.copy_from_slice(&hardware);
        }
    }
}

#[expect(
    unsafe_code,
    reason = "the kernel's list of descriptors to wait for must not have one that is closed"
)]
fn watched(tap: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the result owns the descriptor, and takes it off the list before it closes it.
    Ok(unsafe { AsyncFd::register_with_interest(tap, Interest::READABLE) }?)
}

#[expect(unsafe_code, reason = "an ioctl without a safe wrapper")]
fn header_length(tap: &OwnedFd) -> io::Result<std::ffi::c_int> {
    // SAFETY: TUNGETVNETHDRSZ writes an int, and keeps no pointer to it.
    Ok(unsafe {
        rustix::ioctl::ioctl(tap, rustix::ioctl::Getter::<TUNGETVNETHDRSZ, std::ffi::c_int>::new())
    }?)
}

#[expect(unsafe_code, reason = "an ioctl without a safe wrapper")]
fn change_filter<const CODE: rustix::ioctl::Opcode>(
    tap: &OwnedFd,
    program: &[Instruction],
) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = FilterProgram { length, instructions: program.as_ptr() };
    // SAFETY: the request reads a `struct sock_fprog` and the instructions that it points to, which outlive the call; the kernel copies them.
    unsafe {
        rustix::ioctl::ioctl(tap, rustix::ioctl::Setter::<CODE, FilterProgram>::new(program))?;
    }
    Ok(())
}

#[expect(unsafe_code, reason = "an ioctl without a safe wrapper")]
fn attach(file: &File, request: InterfaceRequest) -> io::Result<()> {
    // SAFETY: TUNSETIFF reads a `struct ifreq`, which the request is laid out as, and keeps no pointer to it.
    unsafe {
        let setter = rustix::ioctl::Setter::<TUNSETIFF, InterfaceRequest>::new(request);
        rustix::ioctl::ioctl(file, setter)?;
    }
    Ok(())
}
