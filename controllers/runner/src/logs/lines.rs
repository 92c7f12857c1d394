//! Bytes to lines: any length, any bytes, any cut.

use super::Line;

/// Bytes of a line that are kept together; longer ones are written in parts.
const LONGEST: usize = 16 << 10;

/// What has come of the line that is not complete.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines(Vec<u8>);

impl Lines {
    /// Takes bytes in; returns the lines they complete, without their ends (`\n`, `\r\n`).
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        while !bytes.is_empty() {
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let room = LONGEST - self.0.len();
            let take = end.unwrap_or(bytes.len()).min(room);
            let (piece, rest) = bytes.split_at(take);
            self.0.extend_from_slice(piece);
            bytes = rest;
            if let Some(after) = bytes.strip_prefix(b"\n") {
                bytes = after;
                lines.push(self.cut(false));
            } else if self.0.len() == LONGEST {
                lines.push(self.cut(true));
            }
        }
        lines
    }

    /// What is left at the end.
    pub(crate) fn finish(&mut self) -> Option<Line> {
        (!self.0.is_empty()).then(|| self.cut(false))
    }

    fn cut(&mut self, partial: bool) -> Line {
        let bytes = std::mem::take(&mut self.0);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(&bytes);
        Line { text: String::from_utf8_lossy(bytes).into_owned(), partial }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ends_of_lines_of_both_kinds() {
        let mut lines = Lines::default();
        let texts: Vec<String> = lines.push(b"a\r\n\nb\xff\nc").into_iter().map(|line| line.text).collect();
        assert_eq!(texts, ["a", "", "b\u{fffd}"]);
        assert_eq!(lines.finish(), Some(Line { text: "c".into(), partial: false }));
        assert_eq!(lines.finish(), None);
    }

    proptest! {
        /// However the bytes are cut, the same lines come out, and nothing is lost.
        #[test]
        fn cuts_do_not_matter(text in "[a-z\n]{0,400}", cuts in proptest::collection::vec(1_usize..50, 0..50)) {
            let mut whole = Lines::default();
            let mut expected = whole.push(text.as_bytes());
            expected.extend(whole.finish());
            let (mut parts, mut got, mut rest) = (Lines::default(), Vec::new(), text.as_bytes());
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                got.extend(parts.push(piece));
                rest = after;
            }
            got.extend(parts.push(rest));
            got.extend(parts.finish());
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn long_lines_come_in_parts(length in 0_usize..60_000) {
            let mut lines = Lines::default();
            let mut all = lines.push(&vec![b'x'; length]);
            all.extend(lines.push(b"\n"));
            prop_assert_eq!(all.iter().map(|line| line.text.len()).sum::<usize>(), length);
            prop_assert!(all.iter().rev().skip(1).all(|line| line.partial) && !all[all.len() - 1].partial);
        }
    }
}
