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
    /// Not the JSON that is expected.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A name that is not allowed.
    #[error("file {name:?}: {source}")]
    Name {
        /// Name of the entry.
        name: String,
        /// What is wrong with it.
        source: name::Error,
    },
    /// Content that is not base64.
    #[error("file {name:?}: {source}")]
    Content {
        /// Name of the file.
        name: String,
        /// Where it stops being base64.
        source: base64::DecodeError,
    },
}

/// Files by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload(BTreeMap<String, Vec<u8>>);

#[derive(Deserialize)]
struct Encoded<'a> {
    // Base64 has nothing that JSON must escape, so that this is a part of the body and no copy.
    #[serde(default, borrow)]
    data: Option<Cow<'a, str>>,
}

impl Payload {
    /// Reads `{"name": {"data": "base64"}}`; absent data is an empty file, unknown keys are skipped.
    ///
    /// # Errors
    /// Names the wrong file and the fault.
    pub fn parse(body: &[u8]) -> Result<Self, Error> {
        let encoded: BTreeMap<String, Encoded<'_>> = neonvm_types::objects::from_slice(body)?;
        let mut files = BTreeMap::new();
        for (name, file) in encoded {
            if let Err(source) = name::check(&name) {
                return Err(Error::Name { name, source });
            }
            match STANDARD.decode(file.data.unwrap_or_default().as_bytes()) {
                Ok(content) => files.insert(name, content),
                Err(source) => return Err(Error::Content { name, source }),
            };
        }
        Ok(Self(files))
    }

    /// Names in the order of their bytes.
    pub fn names(&self) -> impl Iterator<Item = &OsStr> {
        self.0.keys().map(OsStr::new)
    }

    /// Content of a file; empty for one that is not there.
    #[must_use]
    pub fn content(&self, name: &OsStr) -> &[u8] {
        name.to_str().and_then(|name| self.0.get(name)).map_or(&[], Vec::as_slice)
    }

    /// The checksum a directory with these files has.
    #[must_use]
    pub fn checksum(&self) -> String {
        let mut sum = Checksum::default();
        for (name, content) in &self.0 {
            sum.start(OsStr::new(name), u64::try_from(content.len()).unwrap_or(u64::MAX));
            sum.content(content);
        }
        sum.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_read_or_refused_by_name() {
        let payload = Payload::parse(br#"{"b":{"data":"aGk=","mode":1},"a":{},"c":{"data":null}}"#).unwrap();
        assert_eq!(payload.names().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(payload.content(OsStr::new("b")), b"hi");
        for (body, expected) in [
            (r#"{"..data":{"data":""}}"#, "..data"),
            (r#"{"a/b":{"data":""}}"#, "a/b"),
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
