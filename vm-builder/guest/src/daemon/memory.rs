//! How the allocator treats memory that is not needed any more.
#![allow(unsafe_code, reason = "the C library's allocator has no safe interface")]

/// From this size on an allocation is a separate mapping and given back when it is freed, in bytes.
const MAPPED: i32 = 128 * 1024;

/// Makes the allocator give back what large requests needed. By default it raises the size above with the largest
/// allocation it has freed, and keeps one heap a thread; one upload of files would then stay in memory for ever.
pub(crate) fn give_back() {
    // SAFETY: `mallopt` changes parameters of the allocator and touches no memory of ours.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED);
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
