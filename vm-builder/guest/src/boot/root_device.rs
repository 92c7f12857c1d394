//! Waiting for the root device.

use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::device::block::{describe, find_root, scan};
use crate::device::{BlockDevice, uevent};

/// Without announcements, devices are looked for so often.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(500);

/// Waits until the device is there.
///
/// # Errors
/// At the deadline: a description of the devices that are there.
pub fn wait(
    wanted: &str,
    listener: Option<&uevent::Listener>,
    deadline: Instant,
) -> Result<BlockDevice, String> {
    loop {
        let devices = scan();
        if let Some(device) = find_root(&devices, wanted) {
            return Ok(device.clone());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(describe(&devices));
        }
        let timeout = Timespec::try_from(left.min(LOOK_AGAIN)).ok();
        match listener {
            Some(listener) => {
                let mut waited = [PollFd::new(listener.descriptor(), PollFlags::IN)];
                let _ = poll(&mut waited, timeout.as_ref());
                while listener.next().is_ok_and(|event| event.is_some()) {}
            }
            None => std::thread::sleep(left.min(LOOK_AGAIN)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_the_deadline_the_error_lists_the_devices() {
        assert!(wait("/dev/no-such-device", None, Instant::now()).is_err());
    }
}
