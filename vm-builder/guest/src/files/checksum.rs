//! The checksum by which the host sees whether files differ.
//!
//! BLAKE2b with 32 bytes of result over the files in the order of the bytes of their names; of each its name, a NUL
//! byte, its length as 8 bytes, least significant first, and its bytes. Written in the standard base64 alphabet without
//! padding. Hosts and guests of different versions compare it, so it never changes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use blake2::{Blake2b256, Digest as _};

#[derive(Clone, Debug, Default)]
pub struct Checksum(Blake2b256);

impl Checksum {
    /// Starts the next file. Files come in the order of the bytes of their names.
    pub fn start(&mut self, name: &OsStr, length: u64) {
        self.0.update(name.as_bytes());
        self.0.update([0]);
        self.0.update(length.to_le_bytes());
    }

    /// Adds the next bytes of the file.
    pub fn content(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> String {
        STANDARD_NO_PAD.encode(self.0.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(files: &[(&str, &[u8])]) -> String {
        let mut sum = Checksum::default();
        for (name, content) in files {
            sum.start(OsStr::new(name), content.len() as u64);
            sum.content(content);
        }
        sum.finish()
    }

    /// Expected values computed with Python's hashlib.blake2b(digest_size=32).
    #[test]
    fn agrees_with_an_independent_implementation() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(sum(&[]), "DldRwCblQ7Loqy6wYJnaodHl30d3j3eH+qtFzfEv46g");
        assert_eq!(sum(&[("a", b"")]), "bt3uDwi/8NKURYoJc1S3M5vafyqCDe2h2pH8IWO+sPo");
        assert_eq!(
            sum(&[("ca.crt", b"authority\n"), ("tls.crt", b"certificate\n"), ("tls.key", &bytes)]),
            "ruM4XQAYz4hSKrN4oRRVSHdr05htHegHHsS+dIkOlUg"
        );
        assert_eq!(
            sum(&[("Z", b"1"), ("big", &[b'x'; 100_000]), ("ü", b"2")]),
            "IBzmm76tcgypyKboVv5sgFEiJIJYd1b3R9w2mwDj/g8"
        );
    }
}
