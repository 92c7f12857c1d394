//! Capabilities (capabilities(7)): who runs a machine needs none, nor does QEMU.

use std::io;

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// More than any kernel has.
const MOST: u32 = 64;

/// Drops all, for good: this thread, those it starts and what they execute never have one again. A thread that may not change its bounding
/// set keeps that: without new privileges nothing comes from there. System calls only: fit for a child between fork and exec.
///
/// # Errors
/// If the kernel refuses.
pub fn give_up() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    if rustix::thread::capabilities(None)?.permitted.contains(CapabilitySet::SETPCAP) {
        empty_bounding_set()?;
    }
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    Ok(rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?)
}

fn empty_bounding_set() -> io::Result<()> {
    for number in 0..MOST {
        match rustix::thread::remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(
            1 << number,
        )) {
            Ok(()) => {}
            // The kernel supports no more.
            Err(Errno::INVAL) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
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
            give_up().unwrap();
            // A second time nothing is left to be done.
            give_up().unwrap();
            std::fs::read_to_string("/proc/thread-self/status").unwrap()
        });
        let status = look.join().unwrap();
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert!(status.contains(&format!("{set}:\t0000000000000000")), "{set} in {status}");
        }
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    }
}
