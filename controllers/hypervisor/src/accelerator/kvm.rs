//! A guest of some instructions. It counts, exchanges sixteen bytes and queries the processor's name: what a kernel
//! does first, and what an interpreter in place of a processor is too slow for or lacks. Source of numbers and layouts:
//! Linux, `include/uapi/linux/kvm.h` and `Documentation/virt/kvm/api.rst`.
#![expect(unsafe_code, reason = "raw ioctls of KVM, memory of the guest, a signal handler")]

#[cfg(target_arch = "x86_64")]
mod guest;

/// Runs the guest; how well, or why it does not run.
#[cfg(target_arch = "x86_64")]
pub(super) fn run() -> Result<String, String> {
    guest::run()
}

/// On other architectures the only check is that a VM can be created.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn run() -> Result<String, String> {
    use std::os::fd::AsRawFd as _;
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    let device = device.map_err(|error| format!("/dev/kvm: {error}"))?;
    // SAFETY: KVM_CREATE_VM takes a number and returns a descriptor, which the end of this process closes.
    let machine = unsafe { libc::ioctl(device.as_raw_fd(), 0xAE01, 0) };
    if machine < 0 {
        return Err(format!("no machine can be made: {}", std::io::Error::last_os_error()));
    }
    Ok("a machine can be made".to_owned())
}
