//! Capabilities (capabilities(7)), which belong to threads, not to processes: each thread drops its own.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// More than any kernel has.
const MOST: u32 = 64;

/// Drops what is not among `kept`, for good: this thread, those it starts and what they execute never have it again. A
/// thread that may not change its bounding set keeps that: without new privileges nothing comes from there.
///
/// # Errors
/// If the kernel refuses.
pub fn give_up(kept: CapabilitySet) -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    let own = rustix::thread::capabilities(None)?;
    if own.permitted.contains(CapabilitySet::SETPCAP) {
        bound(kept)?;
    }
    rustix::thread::clear_ambient_capability_set()?;
    let left = CapabilitySets {
        effective: own.effective & kept,
        permitted: own.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(rustix::thread::set_capabilities(None, left)?)
}

/// Takes what is not among `kept` out of the bounding set of this thread. System calls only: fit for a child between fork and exec.
///
/// # Errors
/// If one of them cannot be dropped: without `CAP_SETPCAP`.
pub(crate) fn bound(kept: CapabilitySet) -> io::Result<()> {
    for number in 0..MOST {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match rustix::thread::capability_is_in_bounding_set(capability) {
            Ok(true) => rustix::thread::remove_capability_from_bounding_set(capability)?,
            Ok(false) => {}
            // The kernel supports no more.
            Err(Errno::INVAL) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Why this thread could not empty its bounding set; checked before a fork, after which there are no words for it.
pub(crate) fn can_bound() -> Result<(), &'static str> {
    let all = (0..MOST).map(|number| CapabilitySet::from_bits_retain(1 << number));
    let is_empty =
        all.map_while(|one| rustix::thread::capability_is_in_bounding_set(one).ok()).all(|has| !has);
    let may =
        rustix::thread::capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::SETPCAP));
    if is_empty || may { Ok(()) } else { Err("CAP_SETPCAP is needed to take all capabilities from it") }
}

/// Names of the threads of this process that have more than `kept`. The first thread counts only if it is the caller: in a
/// test program it belongs to the test harness.
///
/// # Errors
/// If the kernel does not report them.
pub fn excess(kept: CapabilitySet) -> io::Result<Vec<String>> {
    let first = rustix::process::getpid();
    let is_first = rustix::thread::gettid() == first;
    let mut names = Vec::new();
    for thread in fs::read_dir("/proc/self/task")? {
        let thread = thread?;
        if !is_first && *thread.file_name() == *first.as_raw_nonzero().to_string() {
            continue;
        }
        // One that has just ended has nothing.
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else { continue };
        if !kept.contains(permitted(&status)) {
            let name = status.lines().find_map(|line| line.strip_prefix("Name:"));
            names.push(name.unwrap_or_default().trim().to_owned());
        }
    }
    Ok(names)
}

/// Parses the text of `/proc/PID/status`; all capabilities if the line is missing.
fn permitted(status: &str) -> CapabilitySet {
    let text = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
    let bits = text.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    CapabilitySet::from_bits_retain(bits.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use neonvm_test_support::{need, needs};

    use super::*;

    #[test]
    fn what_is_given_up_is_gone_from_every_set() {
        need!(needs::root());
        // The rights of a thread that ends with the test.
        let look = std::thread::spawn(|| {
            assert!(!excess(CapabilitySet::KILL).unwrap().is_empty(), "it has its rights still");
            give_up(CapabilitySet::KILL).unwrap();
            // A second time nothing is left to be done.
            give_up(CapabilitySet::KILL).unwrap();
            fs::read_to_string("/proc/thread-self/status").unwrap()
        });
        let status = look.join().unwrap();
        assert_eq!(permitted(&status), CapabilitySet::KILL, "{status}");
        for line in ["CapEff:\t0000000000000020", "CapBnd:\t0000000000000020", "CapInh:\t0000000000000000"] {
            assert!(status.contains(line), "{line} in {status}");
        }
        assert!(
            status.contains("CapAmb:\t0000000000000000") && status.contains("NoNewPrivs:\t1"),
            "{status}"
        );
    }

    #[test]
    fn a_text_without_an_answer_counts_as_everything() {
        assert_eq!(permitted("Name:\tx\n").bits(), u64::MAX);
        assert_eq!(permitted("CapPrm:\t0000000000000021\n").bits(), 0x21);
    }
}
