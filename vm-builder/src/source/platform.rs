//! Operating system, architecture and variant of an image, as Go's tools name them; other names are normalised.

use std::fmt;
use std::str::FromStr;

use neonvm_types::runner_protocol::EMULATED_LEVEL;

use super::Error;

/// `linux/amd64`, `linux/amd64/v2`, `linux/arm64`, `linux/arm/v7`: names are Go's, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Platform {
    /// `linux`.
    pub os: String,
    /// `amd64`, `arm64`.
    pub architecture: String,
    /// The highest variant that the VM's CPU runs, such as `v3`. None: see [`Self::limit`].
    pub variant: Option<String>,
}

/// A variant as it is compared: `v8.2` is (8, 2).
type Rank = (u32, u32);

impl Platform {
    /// The platform of this program.
    pub fn host() -> Self {
        Self::normalised("linux", std::env::consts::ARCH, None)
    }

    /// A platform with the names that manifests, configurations and people write: in any case, `x86_64` and `x86-64` for `amd64`,
    /// `aarch64` for `arm64`, `armhf` for `arm/v7`, `armel` for `arm/v6`, `i386` for `386`. The lowest variant of an architecture
    /// is none.
    pub fn normalised(os: &str, architecture: &str, variant: Option<&str>) -> Self {
        let lower = |text: &str| text.trim().to_ascii_lowercase();
        let variant = lower(variant.unwrap_or_default());
        // `8` is `v8`.
        let variant = if variant.starts_with(|first: char| first.is_ascii_digit()) {
            format!("v{variant}")
        } else {
            variant
        };
        let (architecture, variant) = match (lower(architecture).as_str(), variant.as_str()) {
            ("i386" | "i686", _) => ("386".to_owned(), ""),
            ("x86_64" | "x86-64" | "amd64", "v1") => ("amd64".to_owned(), ""),
            ("x86_64" | "x86-64" | "amd64", variant) => ("amd64".to_owned(), variant),
            ("aarch64" | "arm64", "v8" | "v8.0") => ("arm64".to_owned(), ""),
            ("aarch64" | "arm64", "v9.0") => ("arm64".to_owned(), "v9"),
            ("aarch64" | "arm64", variant) => ("arm64".to_owned(), variant),
            ("armhf", _) | ("arm", "") => ("arm".to_owned(), "v7"),
            ("armel", _) => ("arm".to_owned(), "v6"),
            (other, variant) => (other.to_owned(), variant),
        };
        let variant = (!variant.is_empty()).then(|| variant.to_owned());
        Self { os: lower(os), architecture, variant }
    }

    /// This platform with the highest variant that is taken for it. If none is given, that is what every VM runs: on x86-64 the lower one
    /// of the CPU of emulated VMs and of this computer's processor, which VMs with KVM have; on others the lowest variant.
    pub fn limit(&self) -> Self {
        let mut limit = Self::normalised(&self.os, &self.architecture, self.variant.as_deref());
        if self.variant.is_none() && limit.architecture == "amd64" {
            let level = EMULATED_LEVEL.min(host_level());
            limit.variant = (level > 1).then(|| format!("v{level}"));
        }
        limit
    }

    /// How well an image for another platform fits, higher is better; `None`: it does not run here. Empty names match.
    pub(crate) fn fit(&self, other: &Self) -> Option<(u32, u32)> {
        let limit = self.limit();
        let has = Self::normalised(&other.os, &other.architecture, other.variant.as_deref());
        if !has.os.is_empty() && has.os != limit.os {
            return None;
        }
        if has.architecture.is_empty() {
            return Some((0, 0));
        }
        if has.architecture != limit.architecture {
            return None;
        }
        if has.variant == limit.variant {
            return Some(rank(&has).unwrap_or((0, 0)));
        }
        rank(&has).filter(|rank_of| rank(&limit).is_some_and(|limit| *rank_of <= limit))
    }
}

/// The variant as a number; `None` if it has another form.
fn rank(platform: &Platform) -> Option<Rank> {
    let Some(variant) = &platform.variant else {
        return Some(match platform.architecture.as_str() {
            "arm64" => (8, 0),
            "arm" => (7, 0),
            _ => (1, 0),
        });
    };
    let number = variant.strip_prefix('v')?;
    let (major, minor) = number.split_once('.').unwrap_or((number, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The level of x86-64 that this computer's processor has; with another processor VMs for it are emulated.
fn host_level() -> u8 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        let second = has!("sse3")
            && has!("ssse3")
            && has!("sse4.1")
            && has!("sse4.2")
            && has!("popcnt")
            && has!("cmpxchg16b");
        let third = has!("avx")
            && has!("avx2")
            && has!("bmi1")
            && has!("bmi2")
            && has!("f16c")
            && has!("fma")
            && has!("lzcnt");
        match (second, third && has!("movbe")) {
            (true, true) => 3,
            (true, false) => 2,
            _ => 1,
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    EMULATED_LEVEL
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
            problem: "write os/architecture, e.g. linux/amd64, linux/amd64/v2 or linux/arm64".into(),
        };
        let mut parts = text.split('/');
        let (Some(os), Some(architecture), variant, None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let valid = |part: &str| !part.is_empty() && part.bytes().all(plain);
        if !valid(os) || !valid(architecture) || !variant.is_none_or(valid) {
            return Err(wrong());
        }
        let mut platform = Self::normalised(os, architecture, variant);
        // It was given, so that it is the limit.
        if platform.variant.is_none() && variant.is_some() {
            platform.variant = variant.map(str::to_ascii_lowercase);
        }
        Ok(platform)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn platform(text: &str) -> Platform {
        text.parse().unwrap()
    }

    #[test]
    fn names_of_one_platform_are_equal() {
        for (texts, expected) in [
            (
                &["linux/amd64", "LINUX/x86_64", "linux/x86-64", "Linux/AMD64", "linux/X86_64"][..],
                "linux/amd64",
            ),
            (&["linux/arm64", "linux/aarch64", "linux/AArch64"], "linux/arm64"),
            (&["linux/arm", "linux/armhf", "linux/arm/7", "linux/arm/V7"], "linux/arm/v7"),
            (&["linux/armel", "linux/arm/6"], "linux/arm/v6"),
            (&["linux/386", "linux/i386", "linux/i686"], "linux/386"),
            (&["linux/arm64/v9", "linux/aarch64/9.0"], "linux/arm64/v9"),
            (&["linux/amd64/v3", "linux/x86_64/V3", "linux/amd64/3"], "linux/amd64/v3"),
        ] {
            for text in texts {
                assert_eq!(platform(text).to_string(), expected, "{text}");
            }
        }
        for (one, other) in [("linux/amd64/v1", "linux/amd64"), ("linux/arm64/v8", "linux/arm64")] {
            let (one, other) = (platform(one), platform(other));
            assert_eq!(one.fit(&other), other.fit(&one));
            assert!(one.fit(&other).is_some());
        }
        for bad in ["amd64", "linux/", "linux/amd64/v2/x", "linux/a b", ""] {
            assert!(bad.parse::<Platform>().is_err(), "{bad}");
        }
    }

    #[test]
    fn no_variant_above_the_limit_fits() {
        let fits = |limit: &str, other: &str| platform(limit).fit(&platform(other)).is_some();
        for (limit, runs, does_not) in [
            (
                "linux/amd64/v1",
                &["linux/amd64", "linux/amd64/v1"][..],
                &["linux/amd64/v2", "linux/amd64/v3"][..],
            ),
            (
                "linux/amd64/v3",
                &["linux/amd64", "linux/x86_64/v2", "linux/amd64/v3"],
                &["linux/amd64/v4", "linux/386"],
            ),
            (
                "linux/amd64",
                &["linux/amd64"],
                &["linux/amd64/v4", "linux/amd64/v10", "linux/arm64", "windows/amd64"],
            ),
            ("linux/arm64", &["linux/arm64/v8"], &["linux/arm64/v8.1", "linux/arm64/v9", "linux/arm/v7"]),
            ("linux/arm64/v9", &["linux/arm64", "linux/arm64/v8.5", "linux/arm64/v9"], &["linux/arm64/v9.2"]),
            ("linux/arm", &["linux/armel", "linux/arm/v7"], &["linux/arm/v8"]),
        ] {
            for other in runs {
                assert!(fits(limit, other), "{limit} {other}");
            }
            for other in does_not {
                assert!(!fits(limit, other), "{limit} {other}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_names_are_compared(a in "\\PC{0,8}", b in "\\PC{0,8}", variant in proptest::option::of("\\PC{0,6}")) {
            let one = Platform::normalised(&a, &b, variant.as_deref());
            let again = Platform::normalised(&one.os, &one.architecture, one.variant.as_deref());
            prop_assert_eq!(&one, &again);
            let _ = Platform::host().fit(&one);
        }
    }
}
