//! From a bzImage to the ELF file inside it. Started by the PVH entry it needs no decompression at boot, which under
//! emulation is a second or more. Format: Documentation/x86/boot.rst of Linux (setup header, `payload_offset`).

use std::io::Read as _;

use crate::Error;

/// No kernel unpacks to more.
const LARGEST: u64 = 512 << 20;
const SETUP_SECTS: usize = 0x1f1;
const HEADER_MAGIC: usize = 0x202;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;

/// Unpacks the kernel of a bzImage.
pub fn unpack(image: &[u8]) -> Result<Vec<u8>, Error> {
    let payload = payload(image)?;
    let elf = decompress(payload)?;
    if elf.starts_with(b"\x7fELF") {
        return Ok(elf);
    }
    Err(malformed("what is packed in it is not an ELF file"))
}

/// Whether an ELF kernel can be entered the PVH way: it carries the Xen note of type 18.
pub fn has_pvh_entry(elf: &[u8]) -> bool {
    // Note header: name size 4, any size of value, type 18, name "Xen\0".
    elf.windows(16).step_by(4).any(|note| {
        note.starts_with(&4u32.to_le_bytes())
            && note.get(8..12) == Some(&18u32.to_le_bytes())
            && note.get(12..) == Some(b"Xen\0")
    })
}

fn malformed(why: &str) -> Error {
    Error::malformed("the kernel image", why)
}

fn payload(image: &[u8]) -> Result<&[u8], Error> {
    let word = |at: usize| -> Option<usize> {
        let bytes: [u8; 4] = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    if image.get(HEADER_MAGIC..HEADER_MAGIC + 4) != Some(b"HdrS") {
        return Err(malformed("it is not a bzImage"));
    }
    let sectors = match image.get(SETUP_SECTS) {
        // Zero means four, for the sake of very old loaders.
        Some(0) | None => 4,
        Some(&sectors) => usize::from(sectors),
    };
    let start = word(PAYLOAD_OFFSET).map(|offset| (sectors + 1) * 512 + offset);
    let range = start.zip(word(PAYLOAD_LENGTH)).map(|(start, length)| start..start.saturating_add(length));
    range.and_then(|range| image.get(range)).ok_or_else(|| malformed("it is cut short"))
}

fn decompress(payload: &[u8]) -> Result<Vec<u8>, Error> {
    // The build appends the unpacked size to what the packer wrote; readers stop before it.
    let mut out = Vec::new();
    match payload {
        [0x1f, 0x8b, ..] => {
            flate2::read::GzDecoder::new(payload)
                .take(LARGEST)
                .read_to_end(&mut out)
                .map_err(|error| malformed(&error.to_string()))?;
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let decoder =
                zstd::stream::read::Decoder::new(payload).map_err(|error| malformed(&error.to_string()))?;
            decoder
                .single_frame()
                .take(LARGEST)
                .read_to_end(&mut out)
                .map_err(|error| malformed(&error.to_string()))?;
        }
        [0x02, 0x21, 0x4c, 0x18, rest @ ..] => out = legacy_lz4(rest)?,
        [0xfd, b'7', b'z', b'X', b'Z', ..] => {
            lzma_rust2::XzReader::new(payload, false)
                .take(LARGEST)
                .read_to_end(&mut out)
                .map_err(|error| malformed(&error.to_string()))?;
        }
        [0x7f, b'E', b'L', b'F', ..] => out = payload.to_vec(),
        _ => return Err(malformed("it is packed in a way that is not known (lz4, zstd, gzip and xz are)")),
    }
    Ok(out)
}

/// LZ4's legacy frame: blocks of 8 MiB unpacked, each behind its packed size.
fn legacy_lz4(mut rest: &[u8]) -> Result<Vec<u8>, Error> {
    const BLOCK: usize = 8 << 20;
    let mut out = Vec::new();
    // Four bytes are left at the end: the unpacked size.
    while rest.len() > 4 {
        let (size, more) = rest.split_at(4);
        let size = size.try_into().map(u32::from_le_bytes).unwrap_or_default();
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let Some((block, more)) = more.split_at_checked(size) else {
            return Err(malformed("a block of it is cut short"));
        };
        let begun = out.len();
        out.resize(begun + BLOCK, 0);
        let room = out.get_mut(begun..).unwrap_or_default();
        let written = lz4_flex::block::decompress_into(block, room)
            .map_err(|error| malformed(&format!("a block of it cannot be unpacked: {error}")))?;
        out.truncate(begun + written);
        if u64::try_from(out.len()).unwrap_or(u64::MAX) > LARGEST {
            return Err(malformed("it unpacks to more than any kernel"));
        }
        rest = more;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packing::{Packing, pack};

    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024];
        image[SETUP_SECTS] = 1;
        image[HEADER_MAGIC..HEADER_MAGIC + 4].copy_from_slice(b"HdrS");
        image[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4]
            .copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        image.extend_from_slice(payload);
        image
    }

    #[test]
    fn every_packing_is_unpacked() {
        let elf = [b"\x7fELF".as_slice(), &[7; 5000]].concat();
        let size = 5004u32.to_le_bytes();
        let block = lz4_flex::block::compress(&elf);
        let lz4 =
            [&[2, 0x21, 0x4c, 0x18], &u32::try_from(block.len()).unwrap().to_le_bytes()[..], &block, &size]
                .concat();
        let packed = |packing| [&pack(packing, &elf)[..], &size].concat();
        let (zstd, gzip, xz) = (packed(Packing::Zstd), packed(Packing::Gzip), packed(Packing::Xz));
        for payload in [lz4, zstd, gzip, xz, elf.clone()] {
            assert_eq!(unpack(&image(&payload)).unwrap(), elf);
        }
    }

    #[test]
    fn other_files_are_refused() {
        let message = |image: &[u8]| unpack(image).unwrap_err().to_string();
        assert_eq!(message(b"MZ"), "the kernel image is not usable: it is not a bzImage");
        let mut short = image(&[0; 10]);
        short.truncate(1030);
        assert_eq!(message(&short), "the kernel image is not usable: it is cut short");
        assert!(message(&image(b"unknown packing")).contains("not known"));
    }

    #[test]
    fn the_note_of_the_pvh_entry_is_found() {
        let note = [&4u32.to_le_bytes()[..], &8u32.to_le_bytes(), &18u32.to_le_bytes(), b"Xen\0"].concat();
        assert!(has_pvh_entry(&[&[0; 64][..], &note, &[0; 64]].concat()));
        assert!(!has_pvh_entry(&[0; 256]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_unpacked_or_refused(payload: Vec<u8>, magic in 0..5usize) {
            let magic: &[u8] = [&[2, 0x21, 0x4c, 0x18][..], &[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd], b"\xfd7zXZ\0", b"x"][magic];
            let _ = unpack(&image(&[magic, &payload].concat()));
            let _ = unpack(&payload);
        }
    }
}
