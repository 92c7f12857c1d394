//! The protobuf wire format: tags, varints, lengths. Reading borrows; writing is for OpenAPI documents and tests.

use std::borrow::Cow;
use std::fmt;

/// Deepest nesting of messages and groups that is followed.
pub(crate) const MAX_DEPTH: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem(Cow<'static, str>);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&'static str> for Problem {
    fn from(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

/// Nothing left where a value should be.
const CUT_SHORT: &str = "unexpected EOF";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Payload<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1.
    Fixed64(u64),
    /// Wire type 2: text, bytes, a message or packed numbers.
    Bytes(&'a [u8]),
    /// Wire type 5.
    Fixed32(u32),
}

impl Payload<'_> {
    pub(crate) fn wrong_type(self, field: &str) -> Problem {
        let given = match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Fixed32(_) => 5,
        };
        Problem::from(format!("proto: wrong wireType = {given} for field {field}"))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next number and value; groups, which Kubernetes does not use, are passed over.
    pub(crate) fn next_field(&mut self) -> Result<Option<(u32, Payload<'a>)>, Problem> {
        let mut groups = 0_usize;
        while !self.rest.is_empty() {
            let tag = self.varint()?;
            let number = u32::try_from(tag >> 3).ok().filter(|number| (1..1 << 29).contains(number));
            let number = number.ok_or("proto: illegal tag")?;
            let payload = match tag & 7 {
                0 => Payload::Varint(self.varint()?),
                1 => Payload::Fixed64(u64::from_le_bytes(self.array()?)),
                2 => Payload::Bytes(self.bytes()?),
                5 => Payload::Fixed32(u32::from_le_bytes(self.array()?)),
                3 if groups < MAX_DEPTH => {
                    groups += 1;
                    continue;
                }
                3 => return Err("proto: groups are nested too deeply".into()),
                4 => {
                    groups = groups.checked_sub(1).ok_or("proto: unexpected end of group")?;
                    continue;
                }
                other => return Err(format!("proto: illegal wireType {other}").into()),
            };
            if groups == 0 {
                return Ok(Some((number, payload)));
            }
        }
        if groups == 0 { Ok(None) } else { Err(CUT_SHORT.into()) }
    }

    pub(crate) fn next_packed(&mut self) -> Result<Option<u64>, Problem> {
        if self.rest.is_empty() { Ok(None) } else { self.varint().map(Some) }
    }

    pub(crate) fn next_double(&mut self) -> Result<Option<u64>, Problem> {
        if self.rest.is_empty() { Ok(None) } else { Ok(Some(u64::from_le_bytes(self.array()?))) }
    }

    fn varint(&mut self) -> Result<u64, Problem> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(CUT_SHORT)?;
            self.rest = rest;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("proto: integer overflow".into())
    }

    fn bytes(&mut self) -> Result<&'a [u8], Problem> {
        let length = usize::try_from(self.varint()?).map_err(|_| CUT_SHORT)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(CUT_SHORT)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(CUT_SHORT)?;
        self.rest = rest;
        Ok(*bytes)
    }
}

pub(crate) fn text(bytes: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(bytes).map_err(|_| Problem::from("proto: text is no valid UTF-8"))
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Writer {
    out: Vec<u8>,
}

impl Writer {
    pub(crate) fn finish(self) -> Vec<u8> {
        self.out
    }

    #[cfg(test)]
    pub(crate) fn varint(&mut self, field: u32, value: u64) {
        self.tag(field, 0);
        self.raw_varint(value);
    }

    pub(crate) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, 2);
        self.raw_varint(u64::try_from(value.len()).unwrap_or(u64::MAX));
        self.out.extend_from_slice(value);
    }

    pub(crate) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(field, &inner.out);
    }

    fn tag(&mut self, field: u32, wire_type: u64) {
        self.raw_varint(u64::from(field) << 3 | wire_type);
    }

    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.extend(u8::try_from(value & 0x7f | 0x80));
            value >>= 7;
        }
        self.out.extend(u8::try_from(value));
    }
}
