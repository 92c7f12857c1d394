//! Operating system and architecture of an image.

use std::fmt;
use std::str::FromStr;

use super::Error;

/// `linux/amd64`, `linux/arm64`, `linux/arm/v7`: names are Go's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Platform {
    /// `linux`.
    pub os: String,
    /// `amd64`, `arm64`.
    pub architecture: String,
    /// `v8`; none matches any.
    pub variant: Option<String>,
}

impl Platform {
    /// The platform of this program.
    #[must_use]
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { os: "linux".into(), architecture: architecture.into(), variant: None }
    }

    /// Whether an image for `os`, `architecture` and `variant` runs here. Empty ones match.
    #[must_use]
    pub fn accepts(&self, os: &str, architecture: &str, variant: Option<&str>) -> bool {
        let plain = |variant: Option<&str>| match variant {
            // On 64-bit Arm, v8 is the one there is.
            None | Some("") => None,
            Some("v8") if architecture == "arm64" => None,
            Some(other) => Some(other.to_owned()),
        };
        (os.is_empty() || os == self.os)
            && (architecture.is_empty() || architecture == self.architecture)
            && (self.variant.is_none() || plain(self.variant.as_deref()) == plain(variant))
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Platform {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Setting {
            setting: "platform",
            value: text.into(),
            problem: "write os/architecture, e.g. linux/amd64 or linux/arm64".into(),
        };
        let mut parts = text.split('/');
        let (Some(os), Some(architecture), variant, None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let valid = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !valid(os) || !valid(architecture) || !variant.is_none_or(valid) {
            return Err(wrong());
        }
        let architecture = match architecture {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Ok(Self { os: os.into(), architecture: architecture.into(), variant: variant.map(str::to_owned) })
    }
}
