//! Extended headers (POSIX.1-2001 `pax`): lines of `length key=value` that override fields of the next header.

use std::collections::BTreeMap;

use base64::Engine as _;
use neonvm_disk::tree::Time;

/// Keys of access control lists as text, as `tar --acls` writes them: `SCHILY.acl.access`, `.default` and `.ace`.
pub(crate) const TEXT_LIST: &[u8] = b"SCHILY.acl.";

/// The fields of an extended header; none where it sets nothing.
#[derive(Debug, Default)]
pub(super) struct Extended {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) modified: Option<Time>,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) sparse: Sparse,
}

/// GNU's keys of sparse files, versions 0.0, 0.1 and 1.0.
#[derive(Debug, Default)]
pub(super) struct Sparse {
    pub(super) major: Option<u64>,
    pub(super) minor: Option<u64>,
    pub(super) name: Option<Vec<u8>>,
    pub(super) real_size: Option<u64>,
    /// Offsets and lengths, one after another (0.0: of many records, 0.1: of one).
    pub(super) map: Vec<u64>,
    pub(super) has_map: bool,
}

impl Extended {
    /// Reads records; later ones win, and a key without value removes the earlier value.
    pub(super) fn read(&mut self, mut text: &[u8]) -> Result<(), &'static str> {
        while !text.is_empty() {
            // Padding with NULs is not allowed but seen.
            if text.iter().all(|byte| *byte == 0) {
                return Ok(());
            }
            let space = text.iter().take(20).position(|byte| *byte == b' ').ok_or("record without length")?;
            let length = decimal(text.get(..space).unwrap_or_default())?;
            let length = usize::try_from(length).map_err(|_| "record is too long")?;
            let record = text.get(space + 1..length).ok_or("record has a wrong length")?;
            let record = record.strip_suffix(b"\n").ok_or("record does not end with a newline")?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or("record without =")?;
            let (key, value) = record.split_at(equals);
            self.set(key, value.get(1..).unwrap_or_default())?;
            text = text.get(length..).unwrap_or_default();
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let some = (!value.is_empty()).then_some(value);
        let number = || some.map(decimal).transpose();
        let id = |problem| {
            some.map(|value| decimal(value).and_then(|id| u32::try_from(id).map_err(|_| problem))).transpose()
        };
        match key {
            b"path" => self.path = name(some)?,
            b"linkpath" => self.link = name(some)?,
            b"size" => self.size = number()?,
            b"uid" => self.uid = id("owner is not a 32-bit number")?,
            b"gid" => self.gid = id("group is not a 32-bit number")?,
            b"mtime" => self.modified = some.map(time).transpose()?,
            b"GNU.sparse.major" => self.sparse.major = number()?,
            b"GNU.sparse.minor" => self.sparse.minor = number()?,
            b"GNU.sparse.name" => self.sparse.name = name(some)?,
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => self.sparse.real_size = number()?,
            b"GNU.sparse.numblocks" => self.sparse.has_map = true,
            b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => {
                self.sparse.has_map = true;
                self.sparse.map.push(decimal(value)?);
            }
            b"GNU.sparse.map" => {
                self.sparse.has_map = true;
                let parts = some.into_iter().flat_map(|map| map.split(|byte| *byte == b','));
                self.sparse.map = parts.map(decimal).collect::<Result<_, _>>()?;
            }
            _ => self.set_attribute(key, some)?,
        }
        Ok(())
    }

    /// Takes any name: what a file system can store of them is decided for the whole tree.
    fn set_attribute(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), &'static str> {
        let (name, value) = if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
            // GNU tar writes `=` and `%` so, since a key ends with `=`.
            (percent_decoded(name, b"=%"), value.map(<[u8]>::to_vec))
        } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
            let engine = base64::engine::GeneralPurpose::new(
                &base64::alphabet::STANDARD,
                base64::engine::GeneralPurposeConfig::new()
                    .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
            );
            let value = value.map(|value| engine.decode(value)).transpose();
            (percent_decoded(name, &[]), value.map_err(|_| "attribute is not base64")?)
        } else if key.starts_with(TEXT_LIST) {
            // Names in it may be of the image's own users, who are known when the tree is complete.
            (key.to_vec(), value.map(<[u8]>::to_vec))
        } else {
            return Ok(());
        };
        // An attribute may be empty; only the absence of any value would remove it, and the two cannot be
        // distinguished, so that an empty one is kept.
        self.xattrs.insert(name, value.unwrap_or_default());
        Ok(())
    }
}

fn name(value: Option<&[u8]>) -> Result<Option<Vec<u8>>, &'static str> {
    match value {
        Some(value) if value.contains(&0) => Err("name with a NUL"),
        value => Ok(value.map(<[u8]>::to_vec)),
    }
}

/// A decimal number below 2⁶³.
pub(super) fn decimal(text: &[u8]) -> Result<u64, &'static str> {
    if text.is_empty() || text.len() > 19 {
        return Err("number is out of range");
    }
    let value = text.iter().try_fold(0_u64, |value, byte| match byte {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    });
    value.filter(|value| i64::try_from(*value).is_ok()).ok_or("not a decimal number")
}

/// Seconds with a fraction of any length; before 1970 negative.
fn time(text: &[u8]) -> Result<Time, &'static str> {
    let (negative, text) = text.strip_prefix(b"-").map_or((false, text), |text| (true, text));
    let point = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
    let (whole, fraction) = text.split_at(point);
    let whole = decimal(whole)?.cast_signed();
    let mut nanoseconds = 0_u32;
    let mut digits = fraction.iter().skip(1);
    for _ in 0..9 {
        let digit = match digits.next() {
            None => 0,
            Some(digit @ b'0'..=b'9') => digit - b'0',
            Some(_) => return Err("time is not a number"),
        };
        nanoseconds = nanoseconds * 10 + u32::from(digit);
    }
    if !negative {
        return Ok(Time { seconds: whole, nanoseconds });
    }
    Ok(match nanoseconds {
        0 => Time { seconds: -whole, nanoseconds: 0 },
        _ => Time { seconds: -whole - 1, nanoseconds: 1_000_000_000 - nanoseconds },
    })
}

/// Replaces `%XX`; of these bytes only, unless there are none.
fn percent_decoded(text: &[u8], only: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let code = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = code.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (first, byte) {
            (b'%', Some(byte)) if only.is_empty() || only.contains(&byte) => {
                out.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}
