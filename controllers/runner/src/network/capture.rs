//! Copies of the frames that the kernel hands to the guest's tap device on the overlay, during a migration: a QEMU that stops takes
//! one or two more frames from the device, and drops them.
#![expect(unsafe_code, reason = "packet sockets have no safe wrapper")]

use std::collections::VecDeque;
use std::ffi::c_int;
use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::netdevice::name_to_index;
use rustix::net::{RecvFlags, recv};

use neonvm_hypervisor::tap::{Frame, LONGEST};
use neonvm_types::node_protocol::WAITING_FRAMES;

/// Frames that are kept: as many as can wait at the device, and those before them.
const FRAMES: usize = WAITING_FRAMES as usize + TAKEN;
/// Bytes of them that are kept; the oldest are dropped.
const BYTES: usize = 4 << 20;
/// Time between two reads.
const PAUSE: Duration = Duration::from_millis(5);
/// Frames that QEMU takes as it stops, at most.
const TAKEN: usize = 2;
/// A frame after which none waits was taken by a QEMU that stopped only if it arrived within this time.
const RECENT: Duration = Duration::from_millis(100);

/// A packet socket. It gets frames from [`Capture::begin`] to [`Capture::end`] only.
#[derive(Debug)]
pub(super) struct Capture {
    socket: OwnedFd,
    device: u32,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    frames: VecDeque<(Instant, Frame)>,
    bytes: usize,
}

impl Kept {
    fn add(&mut self, at: Instant, frame: Frame) {
        self.bytes += frame.bytes().len();
        self.frames.push_back((at, frame));
        while self.frames.len() > FRAMES || self.bytes > BYTES {
            let Some((_, oldest)) = self.frames.pop_front() else { return };
            self.bytes -= oldest.bytes().len();
        }
    }

    /// The last frames before the first one that still waits at the device, or the last ones of all if none waits and they have
    /// just arrived. None is found twice.
    fn before(&mut self, waiting: Option<&Frame>, now: Instant) -> Vec<Frame> {
        let Self { mut frames, .. } = std::mem::take(self);
        match waiting {
            Some(first) => {
                let at = frames.iter().rposition(|(_, frame)| frame.bytes() == first.bytes());
                frames.truncate(at.unwrap_or_default());
            }
            None => frames.retain(|(at, _)| now.saturating_duration_since(*at) <= RECENT),
        }
        let older = frames.len().saturating_sub(TAKEN);
        frames.drain(older..).map(|(_, frame)| frame).collect()
    }
}

impl Capture {
    /// With an open packet socket, for a device of this network namespace.
    pub(super) fn new(socket: OwnedFd, device: &str) -> io::Result<Self> {
        let device = name_to_index(&socket, device)?;
        Ok(Self { socket, device, kept: Mutex::default() })
    }

    /// Copies frames from now on.
    pub(super) fn begin(&self) -> io::Result<()> {
        self.filter(u32::MAX)?;
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: self.device.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = u32::try_from(size_of_val(&address)).unwrap_or_default();
        // SAFETY: the kernel reads `length` bytes of the address, which lives that long.
        let done = unsafe {
            libc::bind(self.socket.as_raw_fd(), std::ptr::from_ref(&address).cast::<libc::sockaddr>(), length)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Keeps frames until this is dropped or fails.
    pub(super) async fn follow(&self) -> io::Result<()> {
        loop {
            self.drain()?;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Copies none any more, and drops those that are kept.
    pub(super) fn end(&self) -> io::Result<()> {
        self.filter(0)?;
        // Nothing stays in the kernel's buffer either: the next migration would find it.
        self.drain()?;
        *self.kept() = Kept::default();
        Ok(())
    }

    /// The frames that QEMU may have taken as it stopped. `waiting`: the first one that still waits at the device.
    pub(super) fn taken(&self, waiting: Option<&Frame>) -> io::Result<Vec<Frame>> {
        self.drain()?;
        Ok(self.kept().before(waiting, Instant::now()))
    }

    /// Takes in what the kernel has copied.
    fn drain(&self) -> io::Result<()> {
        let mut kept = self.kept();
        let mut bytes = vec![0; LONGEST];
        loop {
            match recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) => {
                    kept.add(Instant::now(), Frame::copied(bytes.get(..length).unwrap_or_default()));
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Accepts up to `bytes` of the frames that go to the guest, and nothing of those that come from it.
    fn filter(&self, bytes: u32) -> io::Result<()> {
        let instruction = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
        let packet_type = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).cast_unsigned();
        let mut program = [
            instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, packet_type),
            instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, u32::from(libc::PACKET_OUTGOING)),
            instruction(libc::BPF_RET | libc::BPF_K, 0, bytes),
            instruction(libc::BPF_RET | libc::BPF_K, 0, 0),
        ];
        let filter = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
        set(&self.socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn set<T>(socket: &OwnedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let length = u32::try_from(size_of_val(value)).unwrap_or_default();
    // SAFETY: the kernel reads `length` bytes of the value, and what it points to, before it returns.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u8) -> Frame {
        Frame::copied(&[&[0; 10][..], &[number; 60]].concat())
    }

    fn kept(numbers: &[u8], at: Instant) -> Kept {
        let mut kept = Kept::default();
        for number in numbers {
            kept.add(at, frame(*number));
        }
        kept
    }

    #[test]
    fn the_frames_before_the_first_that_waits_were_taken() {
        let now = Instant::now();
        let taken = |waiting: Option<u8>, later: Duration| {
            let mut kept = kept(&[1, 2, 3, 4], now);
            let frames = kept.before(waiting.map(frame).as_ref(), now + later);
            assert!(kept.before(None, now).is_empty(), "not twice");
            frames.iter().map(|frame| frame.bytes()[0]).collect::<Vec<_>>()
        };
        let none: [u8; 0] = [];
        assert_eq!(taken(Some(4), RECENT * 2), [2, 3]);
        assert_eq!(taken(Some(2), RECENT * 2), [1]);
        assert_eq!(taken(Some(1), Duration::ZERO), none, "it is not known");
        assert_eq!(taken(Some(9), Duration::ZERO), none, "it was not seen");
        assert_eq!(taken(None, RECENT), [3, 4]);
        assert_eq!(taken(None, RECENT * 2), none, "the guest had time to read them");
    }

    #[test]
    fn memory_is_bounded() {
        let mut kept = Kept::default();
        for _ in 0..200 {
            kept.add(Instant::now(), Frame::copied(&vec![0; LONGEST]));
        }
        assert!(kept.bytes <= BYTES && kept.frames.len() == BYTES / (LONGEST - 10));
        for _ in 0..2 * FRAMES {
            kept.add(Instant::now(), frame(1));
        }
        assert_eq!((kept.frames.len(), kept.bytes), (FRAMES, FRAMES * 60));
    }
}
