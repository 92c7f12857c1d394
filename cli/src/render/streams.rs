//! The streams of a workload on those of this process: byte by byte into a file or a pipe, and harmless on a terminal.

use std::io;

use tokio::io::{AsyncWriteExt as _, Stderr, Stdout};

use super::clean;

pub(crate) struct Streams {
    output: (Stdout, Cleaner),
    errors: (Stderr, Cleaner),
}

impl Streams {
    pub(crate) fn open() -> Self {
        let (output, errors) = crate::env::terminals();
        Self {
            output: (super::interactive(), Cleaner::new(output)),
            errors: (super::out::interactive_errors(), Cleaner::new(errors)),
        }
    }

    /// Writes what comes next of one of them, and has it out.
    ///
    /// # Errors
    /// If it cannot be written; `BrokenPipe` if its reader is gone.
    pub(crate) async fn write(&mut self, is_error: bool, bytes: &[u8]) -> io::Result<()> {
        if is_error {
            let (to, cleaner) = &mut self.errors;
            to.write_all(&cleaner.next(bytes)).await?;
            to.flush().await
        } else {
            let (to, cleaner) = &mut self.output;
            to.write_all(&cleaner.next(bytes)).await?;
            to.flush().await
        }
    }
}

/// Makes bytes harmless for a terminal; for anything else it leaves them as they are.
#[derive(Debug)]
struct Cleaner {
    terminal: bool,
    /// The beginning of a character whose other bytes have not come.
    begun: Vec<u8>,
}

impl Cleaner {
    const fn new(terminal: bool) -> Self {
        Self { terminal, begun: Vec::new() }
    }

    fn next<'a>(&mut self, bytes: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
        if !self.terminal {
            return bytes.into();
        }
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        // Only at its end may a character be incomplete, or a line end that a terminal made be cut in two.
        let is_begun = |tail: &&[u8]| {
            let read = std::str::from_utf8(tail);
            *tail == b"\r" || read.is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        };
        let mut tails = (1..=3).filter_map(|count| all.get(all.len().checked_sub(count)?..));
        let whole = all.len() - tails.find(is_begun).map_or(0, <[u8]>::len);
        self.begun = all.split_off(whole);
        let text = String::from_utf8_lossy(&all).replace("\r\n", "\n");
        clean::text(&text).into_owned().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cleaned(pieces: &[&[u8]]) -> String {
        let mut cleaner = Cleaner::new(true);
        let all = pieces.iter().flat_map(|piece| cleaner.next(piece).into_owned()).collect();
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn a_terminal_gets_nothing_that_steers_it_however_it_is_cut() {
        assert_eq!(cleaned(&[b"\x1b[31mred\xff", b"login: "]), "\\x1b[31mred\u{fffd}login: ");
        assert_eq!(cleaned(&[b"a\r", b"\nb\xc3", b"\xbc"]), "a\nb\u{fc}");
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(bytes: Vec<u8>, at: prop::sample::Index) {
            let bytes = [bytes.as_slice(), b"."].concat();
            let (head, tail) = bytes.split_at(at.index(bytes.len()));
            prop_assert_eq!(cleaned(&[head, tail]), cleaned(&[&bytes]));
        }

        #[test]
        fn a_file_gets_the_bytes(bytes: Vec<u8>) {
            prop_assert_eq!(&*Cleaner::new(false).next(&bytes), &bytes[..]);
        }
    }
}
