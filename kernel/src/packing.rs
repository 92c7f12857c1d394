//! The ways in which distributions compress kernel modules and the content of packages. By name, as the programs that
//! made them named them.

use std::io::{self, Read};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Not at all.
    Plain,
    /// `.gz`.
    Gzip,
    /// `.xz`.
    Xz,
    /// `.zst`.
    Zstd,
}

/// Endings of names, and what they mean.
const ENDINGS: [(&str, Packing); 3] = [(".gz", Packing::Gzip), (".xz", Packing::Xz), (".zst", Packing::Zstd)];

impl Packing {
    /// A name without the ending of the compression, and the compression.
    pub(crate) fn of_name(name: &str) -> (&str, Self) {
        let found = ENDINGS.iter().find_map(|(ending, packing)| Some((name.strip_suffix(ending)?, *packing)));
        found.unwrap_or((name, Self::Plain))
    }

    /// The uncompressed bytes of a stream.
    pub(crate) fn reader<'a>(self, stream: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Self::Plain => Box::new(stream),
            Self::Gzip => Box::new(flate2::read::MultiGzDecoder::new(stream)),
            Self::Xz => Box::new(lzma_rust2::XzReader::new(stream, true)),
            Self::Zstd => Box::new(zstd::stream::read::Decoder::new(stream)?),
        })
    }

    /// The uncompressed bytes.
    pub(crate) fn unpack(self, stream: impl Read, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.reader(stream)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > most {
            return Err(io::Error::other(format!("it unpacks to more than {} MiB", most >> 20)));
        }
        Ok(bytes)
    }
}

/// For tests: compresses.
#[cfg(test)]
pub(crate) fn pack(packing: Packing, bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    match packing {
        Packing::Plain => bytes.to_vec(),
        Packing::Gzip => {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            writer.write_all(bytes).unwrap();
            writer.finish().unwrap()
        }
        Packing::Xz => {
            let options = lzma_rust2::XzOptions::with_preset(1);
            let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
            writer.write_all(bytes).unwrap();
            writer.finish().unwrap()
        }
        Packing::Zstd => zstd::encode_all(bytes, 1).unwrap(),
    }
}

/// For tests: every form with its ending.
#[cfg(test)]
pub(crate) const FORMS: [(&str, Packing); 4] =
    [("", Packing::Plain), (".gz", Packing::Gzip), (".xz", Packing::Xz), (".zst", Packing::Zstd)];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_state_the_form() {
        for (ending, packing) in FORMS {
            assert_eq!(Packing::of_name(&format!("virtio.ko{ending}")), ("virtio.ko", packing));
        }
        assert_eq!(Packing::of_name("data.tar.bz2"), ("data.tar.bz2", Packing::Plain));
    }

    #[test]
    fn more_than_allowed_is_refused() {
        for (_, packing) in FORMS {
            let packed = pack(packing, &[0; 3 << 20]);
            assert_eq!(packing.unpack(packed.as_slice(), 3 << 20).unwrap().len(), 3 << 20);
            let error = packing.unpack(packed.as_slice(), 2 << 20).unwrap_err().to_string();
            assert_eq!(error, "it unpacks to more than 2 MiB");
        }
    }

    proptest! {
        #[test]
        fn bytes_come_back_and_damage_is_an_error_or_other_bytes(bytes: Vec<u8>, at: prop::sample::Index, cut: bool) {
            for (_, packing) in FORMS {
                let packed = pack(packing, &bytes);
                prop_assert_eq!(&packing.unpack(packed.as_slice(), 1 << 20).unwrap(), &bytes);
                let at = at.index(packed.len().max(1));
                let mut damaged = packed.clone();
                if cut {
                    damaged.truncate(at);
                } else if let Some(byte) = damaged.get_mut(at) {
                    *byte ^= 0x55;
                }
                let _ = packing.unpack(damaged.as_slice(), 1 << 20);
            }
        }
    }
}
