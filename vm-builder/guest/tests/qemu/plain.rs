//! Volumes as older runners make them: ISO 9660 (ECMA-119) without extensions, all files in the root directory.

const SECTOR: usize = 2048;
/// Sixteen unused sectors, the descriptor of the volume, and the one that ends descriptors.
const ROOT: usize = 18;

fn both(number: usize) -> Vec<u8> {
    let number = u32::try_from(number).unwrap();
    [number.to_le_bytes(), number.to_be_bytes()].concat()
}

fn entry(name: &[u8], sector: usize, length: usize, directory: bool) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(both(sector));
    bytes.extend(both(length));
    bytes.extend([0; 7]);
    bytes.extend([if directory { 2 } else { 0 }, 0, 0, 1, 0, 0, 1]);
    bytes.push(u8::try_from(name.len()).unwrap());
    bytes.extend(name);
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    bytes[0] = u8::try_from(bytes.len()).unwrap();
    bytes
}

/// A volume. Names are written as they are; the directory must fit into one sector.
pub(crate) fn volume(label: &str, files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut image = vec![0; (ROOT + 1) * SECTOR];
    let mut directory = [entry(&[0], ROOT, SECTOR, true), entry(&[1], ROOT, SECTOR, true)].concat();
    for (name, content) in files {
        directory.extend(entry(name.as_bytes(), image.len() / SECTOR, content.len(), false));
        image.extend(content);
        image.resize(image.len().next_multiple_of(SECTOR), 0);
    }
    assert!(directory.len() <= SECTOR, "too many files");
    image[ROOT * SECTOR..][..directory.len()].copy_from_slice(&directory);
    let mut descriptor = vec![b' '; SECTOR];
    descriptor[..8].copy_from_slice(b"\x01CD001\x01\0");
    descriptor[40..40 + label.len()].copy_from_slice(label.as_bytes());
    descriptor[72..80].fill(0);
    descriptor[80..88].copy_from_slice(&both(image.len() / SECTOR));
    descriptor[88..120].fill(0);
    for at in [120, 124] {
        descriptor[at..at + 4].copy_from_slice(&[1, 0, 0, 1]);
    }
    descriptor[128..132].copy_from_slice(&[0, 8, 8, 0]);
    descriptor[132..156].fill(0);
    descriptor[156..190].copy_from_slice(&entry(&[0], ROOT, SECTOR, true));
    descriptor[881] = 1;
    image[16 * SECTOR..17 * SECTOR].copy_from_slice(&descriptor);
    image[17 * SECTOR..][..7].copy_from_slice(b"\xffCD001\x01");
    image
}
