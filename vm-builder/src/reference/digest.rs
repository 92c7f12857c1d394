//! Content digests: `sha256:` and 64 lower-case hexadecimal digits.

use std::fmt;
use std::io::{BufReader, Read};
use std::str::FromStr;

use ring::digest::{Context, SHA256};

use super::Invalid;

/// A SHA-256 digest. Images with other algorithms are refused by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The digest of what is left to read, and its length in bytes.
    pub fn of_reader(reader: &mut dyn Read) -> std::io::Result<(Self, u64)> {
        let mut hasher = Hasher::default();
        let length = std::io::copy(&mut BufReader::with_capacity(1 << 17, reader), &mut hasher)?;
        Ok((hasher.finish(), length))
    }

    /// The 64 hexadecimal digits, without the algorithm.
    pub fn hex(&self) -> String {
        use fmt::Write as _;
        let mut text = String::with_capacity(64);
        for byte in self.0 {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// From 64 hexadecimal digits without the algorithm.
    pub(crate) fn from_hex(hex: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if hex.len() != 64 || hex.bytes().any(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Digest {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let wrong = |problem: &str| Invalid::new("digest", text, problem);
        let Some((algorithm, hex)) = text.split_once(':') else {
            return Err(wrong("must be sha256: and 64 hexadecimal digits"));
        };
        if algorithm != "sha256" {
            return Err(wrong("only sha256 digests are supported"));
        }
        Self::from_hex(hex)
            .ok_or_else(|| wrong("sha256: must be followed by 64 lower-case hexadecimal digits"))
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Computes a [`Digest`] piece by piece, and counts.
#[derive(Clone)]
pub struct Hasher {
    context: Context,
    length: u64,
}

impl Default for Hasher {
    fn default() -> Self {
        Self { context: Context::new(&SHA256), length: 0 }
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hasher").field("length", &self.length).finish_non_exhaustive()
    }
}

impl std::io::Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Hasher {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
        self.length = self.length.saturating_add(bytes.len() as u64);
    }

    /// Bytes so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn finish(self) -> Digest {
        let mut bytes = [0; 32];
        for (byte, value) in bytes.iter_mut().zip(self.context.finish().as_ref()) {
            *byte = *value;
        }
        Digest(bytes)
    }
}
