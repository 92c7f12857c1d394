//! Which names and paths a request may use.

use std::path::PathBuf;

/// Longest name of a file in bytes, as Kubernetes has it.
pub const LONGEST: usize = 253;

/// What is wrong with a name or a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("empty name")]
    Empty,
    /// More than [`LONGEST`] bytes, or a path of more than 4,095.
    #[error("name too long")]
    TooLong,
    #[error("names `.` and those that start with `..` are reserved")]
    Reserved,
    #[error("name with a slash or NUL byte")]
    Separator,
    /// A percent sign without two hexadecimal digits, or bytes that are no text.
    #[error("path cannot be decoded")]
    Encoding,
}

/// Directories in which a file may be, at most.
const DEEPEST: usize = 32;

/// Whether a file may have this path below the directory: names joined by slashes, each one that [`check`] takes.
pub fn check_path(path: &str) -> Result<(), Error> {
    if path.len() > 4_095 || path.split('/').count() > DEEPEST {
        return Err(Error::TooLong);
    }
    path.split('/').try_for_each(check)
}

/// Whether a file may have this name.
pub fn check(name: &str) -> Result<(), Error> {
    if name.is_empty() {
        Err(Error::Empty)
    } else if name.len() > LONGEST {
        Err(Error::TooLong)
    } else if name == "." || name.starts_with("..") {
        Err(Error::Reserved)
    } else if name.contains(['/', '\0']) {
        Err(Error::Separator)
    } else {
        Ok(())
    }
}

/// The relative path that a percent-encoded path of a URL means. Repeated and leading slashes count once.
///
/// # Errors
/// For `.` and `..`, NUL bytes, what cannot be decoded, and a path without any name.
pub fn decode(encoded: &str) -> Result<PathBuf, Error> {
    let decoded = percent_decode(encoded).ok_or(Error::Encoding)?;
    if decoded.len() > 4_095 {
        return Err(Error::TooLong);
    }
    let mut path = PathBuf::new();
    for part in decoded.split('/').filter(|part| !part.is_empty()) {
        if part == "." || part == ".." {
            return Err(Error::Reserved);
        }
        if part.contains('\0') {
            return Err(Error::Separator);
        }
        path.push(part);
    }
    if path.as_os_str().is_empty() { Err(Error::Empty) } else { Ok(path) }
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            decoded.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["", ".", "..", "..data", "..data_tmp", "a/b", "/a", "a\0", "../a"] {
            assert!(check(name).is_err(), "{name:?}");
        }
        assert!(check(&"x".repeat(254)).is_err());
        for path in ["a/../b", "/a", "a/", "a//b", "a/..data/b", &"a/".repeat(40)] {
            assert!(check_path(path).is_err(), "{path:?}");
        }
        assert!(check_path("sub/deep/p.txt").is_ok());
        for name in ["tls.crt", ".hidden", "a..b", "ü", &"x".repeat(253)] {
            assert!(check(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn paths_are_decoded() {
        assert_eq!(decode("/var/my%20files").unwrap(), Path::new("var/my files"));
        for path in ["", "/", "a/../b", "a/%2e%2E/b", "a/./b", "a%00", "a%2", "a%zz", "%ff"] {
            assert!(decode(path).is_err(), "{path:?}");
        }
        assert!(decode("a%2Fb").is_ok_and(|path| path == Path::new("a/b")));
    }

    proptest! {
        #[test]
        fn decoded_paths_only_go_down(text in "([a./%]|%2e|%2f|%00){0,30}") {
            if let Ok(path) = decode(&text) {
                prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_))));
            }
        }
    }
}
