//! A swap area as `mkswap` makes it: version 1, pages of 4096 bytes.
//! Source of the format: `union swap_header` of Linux' `include/linux/swap.h`.

use crate::bytes::{low32, put, put32};
use crate::image::Memory;

const PAGE: u64 = 4096;

/// Why a swap area cannot be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    #[error("a swap area of {0} bytes is too small: at least 40960 bytes")]
    TooSmall(u64),
    #[error("a swap area of {0} bytes is too large: at most 16 TiB")]
    TooLarge(u64),
    #[error("the label `{0}` is longer than 15 bytes")]
    Label(String),
}

/// A swap area of `length` bytes, rounded down to pages of 4096 bytes.
///
/// # Errors
/// If the size is out of range or the label is over 15 bytes.
pub fn area(length: u64, label: &str, uuid: [u8; 16]) -> Result<Memory, Error> {
    let pages = length / PAGE;
    if pages < 10 {
        return Err(Error::TooSmall(length));
    }
    // The greatest 32-bit number itself means "none" to the kernel.
    if pages > u64::from(u32::MAX) {
        return Err(Error::TooLarge(length));
    }
    if label.len() > 15 {
        return Err(Error::Label(label.to_owned()));
    }
    let mut bytes = vec![0; 4096];
    put32(&mut bytes, 1024, 1);
    put32(&mut bytes, 1028, low32(pages - 1));
    put(&mut bytes, 1036, &uuid);
    put(&mut bytes, 1052, label.as_bytes());
    put(&mut bytes, 4086, b"SWAPSPACE2");
    Ok(Memory { bytes, length: pages * PAGE })
}
