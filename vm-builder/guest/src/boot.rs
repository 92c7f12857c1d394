//! PID 1 of the initramfs that goes with a distribution's kernel: loads modules, finds the root device, hands over.

pub mod modules;
pub mod switch;

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::config::CommandLine;
use crate::device::block::{describe, find_root, scan};
use crate::device::{BlockDevice, uevent};
use crate::mount::{MountFlags, base, mount};
use crate::report;

/// A file that only the initramfs has.
pub const MARKER: &str = "/neonvm-initramfs";
/// Where the root is mounted before it becomes the root.
pub const NEW_ROOT: &str = "/neonvm-root";
/// How long the root device may take to appear.
const PATIENCE: Duration = Duration::from_secs(30);
/// Without announcements, devices are looked for so often.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Boots. Returns, with a status, only when that is not possible; the kernel then panics as its command line sets.
pub fn run() -> u8 {
    // Early messages need the console before anything else can fail.
    let problems = base::mount_all();
    for problem in problems {
        report::console(&problem);
    }
    let text = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let line = CommandLine::parse(&text);
    let listener = uevent::Listener::open();
    for problem in modules::load(Path::new(modules::DIRECTORY)) {
        report::console(&problem);
    }
    let Some(wanted) = line.root.clone() else {
        return refuse("the kernel command line has no root=");
    };
    let deadline = Instant::now() + line.root_timeout.unwrap_or(PATIENCE);
    let device = match wait(&wanted, listener.as_ref().ok(), deadline) {
        Ok(device) => device,
        Err(found) => {
            return refuse(&format!("root device {wanted} did not appear; block devices found: {found}"));
        }
    };
    if let Err(problem) = mount_root(&line, &device) {
        return refuse(&problem);
    }
    if let Err(error) = modules::keep(Path::new(modules::DIRECTORY), Path::new(modules::LATER)) {
        report::console(&format!("keep modules for later: {error}"));
    }
    match switch::switch(Path::new(NEW_ROOT), line.init.as_deref()) {
        Ok(never) => match never {},
        Err(problem) => refuse(&problem),
    }
}

fn mount_root(line: &CommandLine, device: &BlockDevice) -> Result<(), String> {
    let _ = std::fs::create_dir_all(NEW_ROOT);
    let flags = if line.root_writable { MountFlags::empty() } else { MountFlags::RDONLY };
    let options = line.root_flags.as_deref().unwrap_or_default();
    let probed = device.content.as_ref().map(|content| content.kind);
    let kinds = line.root_type.as_deref().or(probed).unwrap_or("ext4");
    let mut last = String::new();
    for kind in kinds.split(',') {
        match mount(&device.node(), Path::new(NEW_ROOT), kind, flags, options) {
            Ok(()) => return Ok(()),
            Err(error) => last = format!("mount root device {} as {kind}: {error}", device.name),
        }
    }
    Err(last)
}

fn refuse(problem: &str) -> u8 {
    report::console(&format!("cannot boot: {problem}"));
    1
}

/// Waits until the root device is there.
///
/// # Errors
/// At the deadline: a description of the devices that are there.
fn wait(wanted: &str, listener: Option<&uevent::Listener>, deadline: Instant) -> Result<BlockDevice, String> {
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
