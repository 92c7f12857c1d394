//! The only way to standard output and standard error. What is written is [`Shown`], and only this file can make that of a
//! text without making the text harmless first; `clippy.toml` refuses other ways in this crate.

#![expect(clippy::disallowed_methods, reason = "this is the one place that writes to a terminal")]

use std::fmt::Write as _;
use std::io::{self, Write as _};

use super::clean;

/// What a terminal may be given: texts from anywhere without what steers it, and sequences of our own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown(String);

impl Shown {
    pub(crate) fn text(text: &str) -> Self {
        Self(clean::text(text).into_owned())
    }

    pub(crate) fn line(text: &str) -> Self {
        Self(clean::line(text).into_owned())
    }

    /// A text that a program reads, byte by byte as it is. Not for a terminal.
    pub(super) fn exact(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn push(&mut self, more: &Self) {
        self.0.push_str(&more.0);
    }

    /// Texts one after the other, with something between two.
    pub(crate) fn join(all: &[Self], between: &Self) -> Self {
        Self(all.iter().map(|one| one.0.as_str()).collect::<Vec<_>>().join(&between.0))
    }

    /// Without spaces and line ends at its end.
    pub(crate) fn trim_end(&self) -> Self {
        Self(self.0.trim_end().to_owned())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// In a colour: a parameter of `ESC [ … m`.
pub(super) fn painted(text: &Shown, code: &'static str) -> Shown {
    let mut out = String::with_capacity(text.0.len() + 10);
    // Writing to a string does not fail.
    let _ = write!(out, "\u{1b}[{code}m{}\u{1b}[0m", text.0);
    Shown(out)
}

pub(super) struct Output(io::BufWriter<io::StdoutLock<'static>>);

impl Output {
    pub(super) fn open() -> Self {
        Self(io::BufWriter::new(io::stdout().lock()))
    }

    pub(super) fn write(&mut self, shown: &Shown) -> io::Result<()> {
        self.0.write_all(shown.0.as_bytes())
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes to standard error. An error of writing there is ignored.
pub(crate) fn errors(shown: &Shown) {
    let _ = io::stderr().lock().write_all(shown.0.as_bytes());
}

/// Standard output for the bytes of a guest, as they are: for what is interactive.
pub(crate) fn interactive() -> tokio::io::Stdout {
    tokio::io::stdout()
}

/// Standard error for the bytes of a guest, as they are.
pub(super) fn interactive_errors() -> tokio::io::Stderr {
    tokio::io::stderr()
}

/// Standard output for the full-screen view, whose cells are cleaned where they are written.
pub(crate) fn full_screen() -> io::BufWriter<io::Stdout> {
    io::BufWriter::with_capacity(32 << 10, io::stdout())
}
