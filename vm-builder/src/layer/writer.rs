//! Writes archives for tests: also such as no program writes.

#[derive(Clone, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

/// An octal field with NUL.
fn octal(value: u64, width: usize) -> Vec<u8> {
    format!("{value:0width$o}\0", width = width - 1).into_bytes()
}

/// GNU's base 256.
pub(crate) fn binary(value: i128, width: usize) -> Vec<u8> {
    let mut bytes = value.to_be_bytes()[16 - width..].to_vec();
    bytes[0] = (bytes[0] & 0x7f) | 0x80;
    bytes
}

/// A header with a right checksum.
pub(crate) fn header(path: &[u8], kind: u8, size: u64, change: impl FnOnce(&mut [u8; 512])) -> [u8; 512] {
    let mut block = [0; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &path[..path.len().min(100)]);
    put(100, &octal(if kind == b'5' { 0o755 } else { 0o644 }, 8));
    put(108, &octal(0, 8));
    put(116, &octal(0, 8));
    put(124, &octal(size, 12));
    put(136, &octal(0, 12));
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    change(&mut block);
    checksum(&mut block);
    block
}

pub(crate) fn checksum(block: &mut [u8; 512]) {
    block[148..156].copy_from_slice(b"        ");
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

impl Writer {
    pub(crate) fn raw(mut self, header: [u8; 512], content: &[u8]) -> Self {
        self.0.extend_from_slice(&header);
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn file(self, path: &str, content: &[u8]) -> Self {
        self.raw(header(path.as_bytes(), b'0', content.len() as u64, |_| {}), content)
    }

    pub(crate) fn directory(self, path: &str, mode: u64) -> Self {
        self.raw(
            header(path.as_bytes(), b'5', 0, |block| block[100..108].copy_from_slice(&octal(mode, 8))),
            b"",
        )
    }

    pub(crate) fn link(self, kind: u8, path: &str, target: &str) -> Self {
        let set = |block: &mut [u8; 512]| block[157..157 + target.len()].copy_from_slice(target.as_bytes());
        self.raw(header(path.as_bytes(), kind, 0, set), b"")
    }

    pub(crate) fn symlink(self, path: &str, target: &str) -> Self {
        self.link(b'2', path, target)
    }

    pub(crate) fn hard_link(self, path: &str, target: &str) -> Self {
        self.link(b'1', path, target)
    }

    pub(crate) fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let mut text = Vec::new();
        for (key, value) in records {
            text.extend_from_slice(&record(key, value));
        }
        self.raw(header(b"pax", b'x', text.len() as u64, |_| {}), &text)
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }
}

/// A record of an extended header, which counts its own digits.
pub(crate) fn record(key: &str, value: &[u8]) -> Vec<u8> {
    record_of(key.as_bytes(), value)
}

/// As [`record`], with a key of any bytes.
pub(crate) fn record_of(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    [length.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}
