//! The files a request brings.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::checksum::Checksum;
use super::name;

/// Why a body is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("file {0:?}: is a directory of another file as well")]
    Directory(String),
    #[error("file {name:?}: mode {mode} is none of 0 to 511")]
    Mode { name: String, mode: u32 },
    #[error("file {name:?}: {source}")]
    Name { name: String, source: name::Error },
    #[error("file {name:?}: {source}")]
    Content {
        name: String,
        /// Where it stops being base64.
        source: base64::DecodeError,
    },
}

/// Mode of a file whose request has none.
pub const MODE: u32 = 0o644;

/// Files by path below the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload(BTreeMap<String, Content>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Content {
    bytes: Vec<u8>,
    mode: u32,
}

#[derive(Deserialize)]
struct Encoded<'a> {
    // Base64 has nothing that JSON must escape, so that this is a part of the body and no copy.
    #[serde(default, borrow)]
    data: Option<Cow<'a, str>>,
    #[serde(default)]
    mode: Option<u32>,
}

impl Payload {
    /// Reads `{"path": {"data": "base64", "mode": 420}}`; absent data is an empty file, an absent mode is 420, unknown keys are
    /// skipped.
    pub fn parse(body: &[u8]) -> Result<Self, Error> {
        let encoded: BTreeMap<String, Encoded<'_>> = neonvm_types::objects::from_slice(body)?;
        let mut files = BTreeMap::new();
        for (name, file) in encoded {
            if let Err(source) = name::check_path(&name) {
                return Err(Error::Name { name, source });
            }
            let mode = file.mode.unwrap_or(MODE);
            if mode > 0o777 {
                return Err(Error::Mode { name, mode });
            }
            match STANDARD.decode(file.data.unwrap_or_default().as_bytes()) {
                Ok(bytes) => files.insert(name, Content { bytes, mode }),
                Err(source) => return Err(Error::Content { name, source }),
            };
        }
        let parents = |path: &str| path.match_indices('/').map(|(at, _)| at).collect::<Vec<_>>();
        for path in files.keys() {
            let above = parents(path).into_iter().filter_map(|at| path.get(..at));
            if let Some(file) = above.into_iter().find(|above| files.contains_key(*above)) {
                return Err(Error::Directory(file.to_owned()));
            }
        }
        Ok(Self(files))
    }

    /// Paths in the order of their bytes.
    pub fn names(&self) -> impl Iterator<Item = &OsStr> {
        self.0.keys().map(OsStr::new)
    }

    /// Content of a file; empty for one that is not there.
    pub fn content(&self, name: &OsStr) -> &[u8] {
        name.to_str().and_then(|name| self.0.get(name)).map_or(&[], |content| content.bytes.as_slice())
    }

    /// Permission bits of a file.
    pub fn mode(&self, name: &OsStr) -> u32 {
        name.to_str().and_then(|name| self.0.get(name)).map_or(MODE, |content| content.mode)
    }

    pub fn checksum(&self) -> String {
        let mut sum = Checksum::default();
        for (name, content) in &self.0 {
            sum.start(OsStr::new(name), u64::try_from(content.bytes.len()).unwrap_or(u64::MAX));
            sum.content(&content.bytes);
        }
        sum.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_read_or_refused_by_name() {
        let payload =
            Payload::parse(br#"{"b":{"data":"aGk=","mode":256},"a":{},"c":{"data":null}}"#).unwrap();
        assert_eq!(payload.names().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(payload.content(OsStr::new("b")), b"hi");
        assert_eq!((payload.mode(OsStr::new("b")), payload.mode(OsStr::new("a"))), (0o400, 0o644));
        for (body, expected) in [
            (r#"{"..data":{"data":""}}"#, "..data"),
            (r#"{"a//b":{"data":""}}"#, "a//b"),
            (r#"{"a":{},"a.b":{},"a/b":{}}"#, "directory of another"),
            (r#"{"a":{"mode":512}}"#, "mode 512"),
            (r#"{"a":{"data":"a?=="}}"#, "\"a\""),
            (r#"{"a":"aGk="}"#, "invalid type"),
            (r"[]", "invalid type"),
            ("", "EOF"),
        ] {
            let error = Payload::parse(body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{body}: {error}");
        }
    }
}
