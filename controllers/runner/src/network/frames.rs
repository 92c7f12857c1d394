//! Frames for the guest on the overlay during a migration: the target claims them as soon as the guest is paused, and
//! the source forwards the frames that still arrive there.

use std::io;
use std::os::fd::OwnedFd;

use neonvm_api::overlay::PASSED_ON;
use neonvm_hypervisor::tap::{Frame, Tap};
use neonvm_types::node_protocol::{OVERLAY_TAP, WAITING_FRAMES};

use super::Error;
use super::capture::Capture;

/// Frames that are passed on at once, so that a stream of them ends: as many as can wait at the device.
const AT_ONCE: usize = WAITING_FRAMES as usize;

/// The guest's frames on the overlay, on this side of a migration.
#[derive(Debug)]
pub(crate) struct Frames {
    tap: Tap,
    guest: [u8; 6],
    /// Finds the frames that QEMU drops as it stops; none with vhost, which drops none.
    capture: Option<Capture>,
}

impl Frames {
    /// For a guest with this address behind a tap device. `copies`: a packet socket, for what QEMU takes from the device as it stops.
    pub(crate) fn new(tap: &Tap, guest: [u8; 6], copies: Option<OwnedFd>) -> Result<Self, Error> {
        let failed = |source| Error::System { what: "cannot keep the device of the overlay".into(), source };
        let capture = copies.map(|socket| Capture::new(socket, OVERLAY_TAP)).transpose().map_err(failed)?;
        Ok(Self { tap: tap.copy().map_err(failed)?, guest, capture })
    }

    /// The same for a device that the kernel reads, not QEMU: it drops no frames.
    pub(crate) fn without_copies(self) -> Self {
        Self { capture: None, ..self }
    }

    /// Keeps copies of the newest frames for the guest, until this is dropped: for a migration that has begun.
    pub(crate) async fn follow(&self) -> io::Result<()> {
        let Some(capture) = &self.capture else { return Ok(()) };
        capture.begin()?;
        capture.follow().await
    }

    /// The guest stays here: no copies are needed.
    pub(crate) fn forget(&self) -> io::Result<()> {
        self.capture.as_ref().map_or(Ok(()), Capture::end)
    }

    /// From now on bridges and tunnels send frames for the guest here, where they wait until it reads them.
    pub(crate) fn claim(&self) -> io::Result<()> {
        self.tap.send(&reverse_arp(self.guest))
    }

    /// Gives back to the overlay what waits here for a guest that another has claimed, after the frames that QEMU may have taken
    /// as it stopped; how many frames.
    ///
    /// Only what is for this guest alone: a frame for all has come to the other side, too. Not while the guest runs here: two
    /// would read the device.
    pub(crate) fn pass_on(&self) -> io::Result<usize> {
        let Some(first) = self.tap.receive()? else { return self.give_back(self.taken(None)) };
        let mut passed = self.give_back(self.taken(Some(&first)).into_iter().chain([first]))?;
        for _ in 1..AT_ONCE {
            let Some(frame) = self.tap.receive()? else { break };
            passed += self.give_back([frame])?;
        }
        Ok(passed)
    }

    /// Frames that QEMU may have taken as it stopped; none if they are not known. With one that waits it takes no more; if none
    /// waits, it may still take the next one.
    fn taken(&self, waiting: Option<&Frame>) -> Vec<Frame> {
        let Some(capture) = &self.capture else { return Vec::new() };
        let taken = capture.taken(waiting);
        let ended = if waiting.is_some() { capture.end() } else { Ok(()) };
        // What waits is passed on in any case.
        if let Err(error) = ended {
            tracing::warn!(%error, "frames for the guest are still copied");
        }
        taken.unwrap_or_else(|error| {
            tracing::info!(%error, "frames that QEMU dropped are not known");
            Vec::new()
        })
    }

    /// Gives those that are for the guest back to the overlay; how many.
    fn give_back(&self, frames: impl IntoIterator<Item = Frame>) -> io::Result<usize> {
        let mut given = 0;
        for mut frame in frames.into_iter().filter(|frame| self.is_for_guest(frame)) {
            frame.set_sender(PASSED_ON);
            self.tap.give_back(frame)?;
            given += 1;
        }
        Ok(given)
    }

    fn is_for_guest(&self, frame: &Frame) -> bool {
        frame.bytes().starts_with(&self.guest)
    }
}

/// A reverse ARP request for one's own address (RFC 903), to all: what QEMU sends, too, when a guest has arrived. No
/// host acts on it, but every bridge that forwards frames records the sender's port.
fn reverse_arp(hardware: [u8; 6]) -> [u8; 60] {
    let mut frame = [0; 60];
    let head = [[0xff; 6], hardware].concat();
    // EtherType; Ethernet, IPv4, lengths of their addresses, request.
    let kind = [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3];
    let bytes = head.into_iter().chain(kind).chain(hardware).chain([0; 4]).chain(hardware);
    for (to, from) in frame.iter_mut().zip(bytes) {
        *to = from;
    }
    frame
}

#[cfg(test)]
mod tests {
    use neonvm_test_support::{lab, need};

    use std::net::Ipv4Addr;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use neonvm_node::{Addresses, Overlay, copies, interfaces, join};

    use super::*;

    const GUEST: [u8; 6] = [2, 0, 0, 0, 0, 7];
    const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 9];

    const IP: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 7);
    /// Where the word of a frame is.
    const WORD: usize = 42;

    fn frame(to: [u8; 6], word: &str) -> Vec<u8> {
        lab::packet((CLIENT, to), (Ipv4Addr::new(10, 9, 9, 9), IP), 17, 5000, word.as_bytes())
    }

    fn joined() -> Overlay {
        let guest = Addresses { hardware: GUEST, ip: IP };
        join("net1", &interfaces().expect("interfaces"), guest, Path::new("/dev/net/tun")).expect("joined")
    }

    /// The pod's interface is a tap device with a simulated node at its other end.
    #[test]
    fn what_waits_for_the_guest_goes_back_to_the_node_and_nothing_else() {
        need!(lab::inside("frames", || {
            let node = Tap::open("net1").expect("the node's end");
            let overlay = joined();
            let frames = Frames::new(&overlay.tap, GUEST, None).expect("frames");
            // Ports of a bridge forward a moment after they are up; other packets of the kernel are ignored.
            let until = Instant::now() + Duration::from_secs(60);
            let mut received = Vec::new();
            while received.is_empty() {
                assert!(Instant::now() < until, "nothing is passed on");
                for (to, word) in [(GUEST, "guest"), ([2, 0, 0, 0, 0, 8], "another"), ([0xff; 6], "all")] {
                    node.send(&frame(to, word)).expect("sent");
                }
                frames.pass_on().expect("passed on");
                while let Some(frame) = node.receive().expect("read") {
                    received.push(frame.bytes().to_vec());
                }
                received.retain(|frame| frame.get(12..14) == Some(&[8, 0]));
            }
            for frame in &received {
                assert!(frame.starts_with(&[GUEST, PASSED_ON].concat()), "{frame:x?}");
                assert!(frame[WORD..].starts_with(b"guest"), "{frame:x?}");
            }
            assert_eq!(frames.pass_on().expect("passed on"), 0, "nothing is left");
        }));
    }

    /// Frames that arrive at a tap device, without those of the kernel.
    fn read(tap: &Tap) -> Vec<Vec<u8>> {
        let all = std::iter::from_fn(|| tap.receive().expect("read"));
        let all = all.map(|frame| frame.bytes().to_vec());
        all.filter(|frame| frame.get(12..14) == Some(&[8, 0])).collect()
    }

    #[test]
    fn what_qemu_took_as_it_stopped_goes_back_before_what_waits() {
        need!(lab::inside("taken", || {
            let node = Tap::open("net1").expect("the node's end");
            let overlay = joined();
            let socket = copies(OVERLAY_TAP).expect("a socket");
            let frames = Frames::new(&overlay.tap, GUEST, Some(socket)).expect("frames");
            let capture = frames.capture.as_ref().expect("copies");
            let passed = |words: [&str; 3]| {
                words.map(|word| [&frame(GUEST, word)[..6], &PASSED_ON, &frame(GUEST, word)[12..]].concat())
            };
            // Ports of a bridge forward a moment after they are up, and packets of the kernel may come between two.
            let until = Instant::now() + Duration::from_secs(60);
            loop {
                assert!(Instant::now() < until, "nothing is passed on");
                capture.begin().expect("begun");
                for word in ["zero", "one", "two", "three"] {
                    node.send(&frame(GUEST, word)).expect("sent");
                    // The guest gets the first, and QEMU takes the next two.
                    if word != "three" && read(&overlay.tap).is_empty() {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
                frames.pass_on().expect("passed on");
                if read(&node) == passed(["one", "two", "three"]) {
                    break;
                }
            }
            node.send(&frame(GUEST, "four")).expect("sent");
            assert_eq!(read(&overlay.tap), [frame(GUEST, "four")]);
            assert_eq!(frames.pass_on().expect("passed on"), 0, "nothing is copied any more");
        }));
    }
}
