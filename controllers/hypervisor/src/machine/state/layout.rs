//! Where memory is in a file that QEMU writes with `mapped-ram` (QEMU's `docs/devel/migration/mapped-ram.rst`). Pure, and strict: a file that
//! differs from what is known here in any way has no layout, and is loaded by QEMU as a whole.
//!
//! ```text
//! "QEVM" version=3 │ 7: machine type │ 5: capabilities = { mapped-ram } │ 1: section "ram", version 4 │ bytes of memory
//! for each block: name │ bytes │ version=1, page size, offset of the bitmap, offset of the pages │ bitmap │ … pages
//! ```
//!
//! Numbers are big-endian. A bit of the bitmap is set if the file has the page; pages without one are zeros.

const MAGIC: u32 = 0x5145_564d;
const VERSION: u32 = 3;
/// Kinds of parts.
const SECTION: u8 = 1;
const SUBSECTION: u8 = 5;
const CONFIGURATION: u8 = 7;
/// Version of the section with the memory.
const RAM: u32 = 4;
/// What the bytes of memory are marked with, in bits that pages have not.
const SIZES: u64 = 4;
/// Version of a block's header.
const HEADER: u32 = 1;
const PAGE: u64 = 4096;
/// Pages of a block begin at a multiple of this.
const ALIGNMENT: u64 = 1 << 20;
/// Longest name of a machine type, and most blocks: a VM has about ten.
const MOST: usize = 255;

/// One block of memory in a file. All of it is within the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Name by which QEMU finds it, such as `pc.ram`.
    pub name: String,
    /// Bytes: a multiple of 4096.
    pub length: u64,
    /// Where its bitmap begins in the file, in bytes.
    pub bitmap: u64,
    /// Where its pages begin in the file, in bytes: a multiple of 1 MiB.
    pub pages: u64,
}

impl Block {
    /// Bytes of its bitmap: a bit for each page, in words of 64.
    #[must_use]
    pub fn bitmap_bytes(&self) -> u64 {
        (self.length / PAGE).div_ceil(64) * 8
    }
}

/// The blocks of a file of `size` bytes, in its order; `read` fills a buffer from an offset, or returns that it cannot. `None`: the file is
/// not one that is known.
pub fn blocks(size: u64, read: impl FnMut(u64, &mut [u8]) -> bool) -> Option<Vec<Block>> {
    let mut reader = Reader { read, at: 0 };
    if reader.u32()? != MAGIC || reader.u32()? != VERSION || reader.u8()? != CONFIGURATION {
        return None;
    }
    let machine = usize::try_from(reader.u32()?).ok().filter(|length| *length <= MOST)?;
    reader.bytes(machine)?;
    let capabilities = reader.u8()? == SUBSECTION
        && reader.name()? == "configuration/capabilities"
        && reader.u32()? == 1
        && reader.u32()? == 1
        && reader.name()? == "mapped-ram";
    if !capabilities || reader.u8()? != SECTION {
        return None;
    }
    let _number = reader.u32()?;
    if reader.name()? != "ram" || reader.u32()? != 0 || reader.u32()? != RAM {
        return None;
    }
    let sizes = reader.u64()?;
    let mut left = sizes.checked_sub(SIZES).filter(|bytes| bytes % PAGE == 0)?;
    let mut blocks = Vec::new();
    while left > 0 && blocks.len() < MOST {
        let block = reader.block(size)?;
        left = left.checked_sub(block.length)?;
        blocks.push(block);
    }
    (left == 0).then_some(blocks)
}

struct Reader<R> {
    read: R,
    at: u64,
}

impl<R: FnMut(u64, &mut [u8]) -> bool> Reader<R> {
    fn fill(&mut self, buffer: &mut [u8]) -> Option<()> {
        let end = self.at.checked_add(buffer.len() as u64)?;
        (self.read)(self.at, buffer).then_some(())?;
        self.at = end;
        Some(())
    }

    fn bytes(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut buffer = vec![0; length];
        self.fill(&mut buffer).map(|()| buffer)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut buffer = [0; N];
        self.fill(&mut buffer).map(|()| buffer)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(u8::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn name(&mut self) -> Option<String> {
        let length = self.u8()?;
        String::from_utf8(self.bytes(length.into())?).ok()
    }

    /// The next block, if all of it is within a file of this size; then reads on behind its pages.
    fn block(&mut self, size: u64) -> Option<Block> {
        let (name, length) = (self.name()?, self.u64()?);
        if self.u32()? != HEADER || self.u64()? != PAGE {
            return None;
        }
        let block = Block { name, length, bitmap: self.u64()?, pages: self.u64()? };
        let bitmap_end = block.bitmap.checked_add(block.bitmap_bytes())?;
        let end = block.pages.checked_add(length)?;
        let fits = length > 0 && length.is_multiple_of(PAGE) && block.pages.is_multiple_of(ALIGNMENT);
        if !fits || block.bitmap != self.at || bitmap_end > block.pages || end > size {
            return None;
        }
        self.at = end;
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: u64 = 812_773_945;

    /// The begin of a file of QEMU 10.0.13, and that of each further block: a VM of 256 MiB with a memory device of 512 MiB.
    fn file() -> Vec<(u64, Vec<u8>)> {
        let mut head = b"QEVM\0\0\0\x03\x07\0\0\0\x0bpc-q35-10.0\x05\x1aconfiguration/capabilities\0\0\0\x01\0\0\0\x01\x0amapped-ram".to_vec();
        head.extend(b"\x01\0\0\0\x01\x03ram\0\0\0\0\0\0\0\x04\0\0\0\0\x30\0\0\x04");
        let device = block(head.len() as u64, "0000:00:01.0/vmem0", 512 << 20);
        head.extend(&device.0);
        let board = block(device.1, "pc.ram", 256 << 20);
        vec![(0, head), (device.1, board.0)]
    }

    /// A block whose header begins there, and where it ends.
    fn block(at: u64, name: &str, length: u64) -> (Vec<u8>, u64) {
        let mut bytes = vec![name.len() as u8];
        bytes.extend(name.as_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(HEADER.to_be_bytes());
        bytes.extend(PAGE.to_be_bytes());
        let bitmap = at + bytes.len() as u64 + 16;
        let pages = (bitmap + length / PAGE / 8).next_multiple_of(ALIGNMENT);
        bytes.extend(bitmap.to_be_bytes());
        bytes.extend(pages.to_be_bytes());
        (bytes, pages + length)
    }

    fn read(parts: &[(u64, Vec<u8>)], size: u64) -> Option<Vec<Block>> {
        blocks(size, |at, buffer| {
            let found = parts.iter().rev().find(|(begin, _)| *begin <= at);
            let Some((begin, bytes)) = found else { return false };
            let from = usize::try_from(at - begin).unwrap();
            let part = bytes.get(from..from + buffer.len());
            part.inspect(|part| buffer.copy_from_slice(part)).is_some()
        })
    }

    #[test]
    fn blocks_are_found_behind_each_other() {
        let found = read(&file(), SIZE).unwrap();
        let expected = [
            ("0000:00:01.0/vmem0", 512 << 20, 0x97, 1 << 20),
            ("pc.ram", 256 << 20, (513 << 20) + 43, 514 << 20),
        ];
        let expected =
            expected.map(|(name, length, bitmap, pages)| Block { name: name.into(), length, bitmap, pages });
        assert_eq!(found, expected);
        assert_eq!(found[1].bitmap_bytes(), 8192);
    }

    #[test]
    fn a_file_that_is_not_known_has_no_layout() {
        assert_eq!(read(&file(), 700 << 20), None, "its pages end behind the file");
        for (part, at) in [(0, 3), (0, 7), (0, 8), (0, 25), (0, 54), (0, 78), (0, 87), (1, 18), (1, 26)] {
            let mut file = file();
            file[part].1[at] ^= 1;
            assert_eq!(read(&file, SIZE), None, "byte {at} of part {part}");
        }
    }

    proptest! {
        #[test]
        fn no_block_of_any_file_is_outside_of_it(
            changes in proptest::collection::vec((0..2_usize, any::<prop::sample::Index>(), any::<u8>()), 0..4),
            size in prop_oneof![Just(SIZE), any::<u64>()],
        ) {
            let mut file = file();
            for (part, at, byte) in changes {
                let part = &mut file[part].1;
                let at = at.index(part.len());
                part[at] = byte;
            }
            for block in read(&file, size).unwrap_or_default() {
                prop_assert!(block.bitmap + block.bitmap_bytes() <= block.pages);
                prop_assert!(block.pages.checked_add(block.length).is_some_and(|end| end <= size));
            }
        }
    }
}
