//! The fixed fields of a tar header (POSIX.1-1988 `ustar`, GNU's variant, and what was before both).

use neonvm_disk::tree::Time;

/// Length of a header and unit of padding, in bytes.
pub(super) const BLOCK: usize = 512;

pub(super) struct Header<'a>(&'a [u8; BLOCK]);

impl<'a> Header<'a> {
    /// The header, if the sum of its bytes matches its checksum. Old programs added signed bytes: that counts, too.
    pub(super) fn checked(block: &'a [u8; BLOCK]) -> Option<Self> {
        let stated = number(block.get(148..156)?).ok()?;
        let (mut unsigned, mut signed) = (0_i128, 0_i128);
        for (index, byte) in block.iter().enumerate() {
            let byte = if (148..156).contains(&index) { b' ' } else { *byte };
            unsigned += i128::from(byte);
            signed += i128::from(byte.cast_signed());
        }
        (stated == unsigned || stated == signed).then_some(Self(block))
    }

    fn field(&self, start: usize, end: usize) -> &'a [u8] {
        self.0.get(start..end).unwrap_or_default()
    }

    fn is_gnu(&self) -> bool {
        self.field(257, 265) == b"ustar  \0"
    }

    /// The name, with POSIX's prefix.
    pub(super) fn path(&self) -> Vec<u8> {
        let name = text(self.field(0, 100));
        let prefix = text(self.field(345, 500));
        if self.field(257, 263) == b"ustar\0" && !prefix.is_empty() {
            return [prefix, b"/", name].concat();
        }
        name.to_vec()
    }

    pub(super) fn link(&self) -> Vec<u8> {
        text(self.field(157, 257)).to_vec()
    }

    pub(super) fn kind(&self) -> u8 {
        self.0.get(156).copied().unwrap_or_default()
    }

    /// Permission bits; some programs write the type of the file, too.
    pub(super) fn mode(&self) -> Result<u16, &'static str> {
        let mode = number(self.field(100, 108))?;
        Ok(u16::try_from(mode & 0o7777).unwrap_or_default())
    }

    pub(super) fn uid(&self) -> Result<u32, &'static str> {
        u32::try_from(number(self.field(108, 116))?).map_err(|_| "owner is not a 32-bit number")
    }

    pub(super) fn gid(&self) -> Result<u32, &'static str> {
        u32::try_from(number(self.field(116, 124))?).map_err(|_| "group is not a 32-bit number")
    }

    pub(super) fn size(&self) -> Result<u64, &'static str> {
        size(self.field(124, 136))
    }

    pub(super) fn modified(&self) -> Result<Time, &'static str> {
        let seconds = i64::try_from(number(self.field(136, 148))?).map_err(|_| "time is out of range")?;
        Ok(Time { seconds, nanoseconds: 0 })
    }

    pub(super) fn device(&self) -> Result<(u32, u32), &'static str> {
        let part = |start, end| {
            u32::try_from(number(self.field(start, end))?).map_err(|_| "device number is out of range")
        };
        Ok((part(329, 337)?, part(337, 345)?))
    }

    /// GNU's old form of sparse files: runs in the header, whether more follow, and the real size.
    pub(super) fn gnu_sparse(&self) -> Result<(&'a [u8], bool, u64), &'static str> {
        if !self.is_gnu() {
            return Err("sparse file without GNU header");
        }
        let more = self.field(482, 483).first().is_some_and(|flag| *flag != 0);
        Ok((self.field(386, 482), more, size(self.field(483, 495))?))
    }
}

/// A size or an offset: not negative and below 2⁶³.
pub(super) fn size(field: &[u8]) -> Result<u64, &'static str> {
    let value = number(field)?;
    i64::try_from(value).ok().and_then(|value| u64::try_from(value).ok()).ok_or("size is out of range")
}

/// Text up to the first NUL.
pub(super) fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A number: octal digits between blanks or NULs, or GNU's base 256 if the first bit is set.
pub(super) fn number(field: &[u8]) -> Result<i128, &'static str> {
    let Some((first, rest)) = field.split_first() else {
        return Ok(0);
    };
    if first & 0x80 != 0 {
        // Two's complement; the first bit marks the form, the second is the sign.
        let negative = first & 0x40 != 0;
        let mut value = i128::from(first & 0x3f);
        if negative {
            value -= 0x40;
        }
        for byte in rest {
            value = value
                .checked_mul(256)
                .and_then(|value| value.checked_add(i128::from(*byte)))
                .filter(|value| value.unsigned_abs() < 1 << 100)
                .ok_or("number is out of range")?;
        }
        return Ok(value);
    }
    let digits = field.trim_ascii_start();
    let end = digits.iter().position(|byte| matches!(byte, 0 | b' ')).unwrap_or(digits.len());
    // Programs of old left rubbish after the end of a number.
    digits.iter().take(end).try_fold(0_i128, |value, byte| match byte {
        b'0'..=b'7' => Ok(value * 8 + i128::from(byte - b'0')),
        _ => Err("number is not octal"),
    })
}
