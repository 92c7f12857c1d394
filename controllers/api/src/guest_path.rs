//! A path in the guest, as an author of VMs writes it. The same path names a directory of files in the runner's pod, see
//! [`crate::runner_pod::mounted`], so what leads out of a directory cannot be one.

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

/// Longest path, in bytes: `PATH_MAX` of Linux without the final zero.
const LONGEST: usize = 4095;
/// Longest part of a path, in bytes: `NAME_MAX` of Linux.
const LONGEST_PART: usize = 255;

/// The pattern of such a path in definitions; [`rules`] has the rest.
pub(crate) const PATTERN: &str = r#"^/[^\s:'"\\\x00-\x1f\x7f]+$"#;

/// A path other than `/`, absolute, of plain parts joined by single slashes, without what a mount table or a shell would misread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestPath(String);

/// What a path must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} must be an absolute path other than /, without . and .. as parts, spaces, quotes, colons and backslashes, of parts of at most \
     255 bytes; write for example /var/lib/data"
)]
pub struct NoGuestPath(String);

impl FromStr for GuestPath {
    type Err = NoGuestPath;

    /// Repeated slashes and those at the end are left out.
    fn from_str(text: &str) -> Result<Self, NoGuestPath> {
        let refused = || NoGuestPath(text.chars().take(100).collect());
        let misread = |c: char| c.is_whitespace() || c.is_control() || ":'\"\\".contains(c);
        if !text.starts_with('/') || text.len() > LONGEST || text.contains(misread) {
            return Err(refused());
        }
        let mut path = String::with_capacity(text.len());
        for part in text.split('/').filter(|part| !part.is_empty()) {
            if matches!(part, "." | "..") || part.len() > LONGEST_PART {
                return Err(refused());
            }
            path.push('/');
            path.push_str(part);
        }
        if path.is_empty() { Err(refused()) } else { Ok(Self(path)) }
    }
}

impl GuestPath {
    /// The path, in its only spelling.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The rules of a definition for a field with such a path.
pub(crate) fn rules() -> Value {
    json!([{ "rule": r"!self.matches('(^|/)[.][.]?(/|$)') && !self.matches('^/+$')",
        "message": "must be a path other than /, without . and .. as parts; write for example /var/lib/data" }])
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_leads_out_or_is_misread_is_no_path() {
        for bad in [
            "",
            "x",
            "/",
            "//",
            "/..",
            "/../config",
            "/../../etc",
            "/a/../../b",
            "/a/..",
            "/.",
            "/a/./b",
            "../a",
            "/a\n/b",
            "/a b",
            "/a:b",
            "/a\0b",
            "/a\\..\\b",
            "/a\u{7f}",
            "/a\u{2028}b",
            "a/b",
            " /a",
        ] {
            assert!(bad.parse::<GuestPath>().is_err(), "{bad:?}");
        }
        assert!(format!("/{}", "a".repeat(256)).parse::<GuestPath>().is_err());
        assert!("/a".repeat(2048).parse::<GuestPath>().is_err());
        for (good, path) in
            [("/a", "/a"), ("/a/", "/a"), ("//a///b/", "/a/b"), ("/..a/b..", "/..a/b.."), ("/…", "/…")]
        {
            assert_eq!(good.parse::<GuestPath>().unwrap().as_str(), path);
        }
    }

    proptest! {
        /// Whatever is parsed stays below the directory of mounts, and is its own only spelling.
        #[test]
        fn a_path_stays_below_its_directory(text in "(/|[.]|[.][.]|[a-z:'\"\\\\ \n\u{0}é]{1,3}){0,12}") {
            if let Ok(path) = text.parse::<GuestPath>() {
                let inside = crate::runner_pod::mounted(&path);
                let rest = Path::new(&inside).strip_prefix(crate::runner_pod::MOUNTS_DIRECTORY).unwrap();
                prop_assert!(rest.components().all(|part| matches!(part, Component::Normal(_))));
                prop_assert!(rest.components().count() > 0);
                prop_assert_eq!(path.as_str().parse::<GuestPath>().unwrap(), path);
            }
        }
    }
}
