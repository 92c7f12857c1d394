//! Which QEMU is there.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::patience::scaled;
use crate::plan::Architecture;

/// Time that QEMU has to print its version.
const DEADLINE: Duration = Duration::from_secs(5);

/// A version, such as 7.2.22.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub micro: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

impl Version {
    /// Reads the first line of what `--version` prints.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.lines().next()?.split_once("version ")?.1;
        let word = rest.split_whitespace().next()?;
        let mut numbers = word.split('.').map(|part| {
            let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part.get(..end).unwrap_or_default().parse::<u32>().ok()
        });
        let mut next = || numbers.next().flatten();
        let (major, minor) = (next()?, next()?);
        Some(Self { major, minor, micro: next().unwrap_or(0) })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    pub program: PathBuf,
    pub version: Version,
    /// What it emulates.
    pub architecture: Architecture,
}

/// Why there is no QEMU.
#[derive(Debug, thiserror::Error)]
pub enum InstallationError {
    /// It does not start.
    #[error("cannot run {}: {source}", program.display())]
    Start {
        program: PathBuf,
        /// Why it could not be started.
        source: std::io::Error,
    },
    /// It does not end.
    #[error("{} --version does not end within {} s", program.display(), scaled(DEADLINE).as_secs())]
    Hangs { program: PathBuf },
    /// The output of `--version` cannot be parsed.
    #[error("{} --version printed {output:?}, which names no version", program.display())]
    Version {
        program: PathBuf,
        /// The first line.
        output: String,
    },
}

impl Installation {
    /// Queries the version of a QEMU: `program`, or that of the architecture in `PATH`.
    ///
    /// # Errors
    /// If it cannot be run or is none.
    pub async fn find(program: Option<&Path>, architecture: Architecture) -> Result<Self, InstallationError> {
        let program = program.unwrap_or_else(|| Path::new(architecture.program()));
        // QEMU runs without an environment, and so without `PATH`.
        let program = in_path(program, std::env::var_os("PATH").as_deref());
        let mut command = Command::new(&program);
        command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let output = match tokio::time::timeout(scaled(DEADLINE), command.output()).await {
            Ok(Ok(output)) => output,
            Ok(Err(source)) => return Err(InstallationError::Start { program, source }),
            Err(_) => return Err(InstallationError::Hangs { program }),
        };
        let text = String::from_utf8_lossy(&output.stdout);
        match Version::parse(&text) {
            Some(version) => Ok(Self { program, version, architecture }),
            None => {
                let output = text.lines().next().unwrap_or_default().chars().take(200).collect();
                Err(InstallationError::Version { program, output })
            }
        }
    }

    /// Features of a virtio network device that depend on the host, so that a guest which uses one cannot go to every other
    /// host: reset of one queue, which QEMU has and the kernel's end (`vhost`) has since Linux 6.2, and segmentation of
    /// UDP, which tap devices have since Linux 6.2 and QEMU knows since 8.2.
    #[must_use]
    pub fn network_features_off(&self) -> &'static [&'static str] {
        let Version { major, minor, .. } = self.version;
        let all = &["queue_reset", "host_uso", "guest_uso4", "guest_uso6"];
        if (major, minor) >= (8, 2) { all } else { &["queue_reset"] }
    }

    /// The newest machine type of this version: recorded, so that a migration is between equals.
    #[must_use]
    pub fn machine_type(&self) -> String {
        let Version { major, minor, .. } = self.version;
        match self.architecture {
            Architecture::Amd64 => format!("pc-q35-{major}.{minor}"),
            Architecture::Arm64 => format!("virt-{major}.{minor}"),
        }
    }
}

/// The program with this name that the variable `PATH` of this process leads to.
#[must_use]
pub fn found_in_path(program: &str) -> Option<PathBuf> {
    let found = in_path(Path::new(program), std::env::var_os("PATH").as_deref());
    found.is_absolute().then_some(found)
}

/// The program that a name without a slash means; the name itself if there is none.
fn in_path(program: &Path, path: Option<&OsStr>) -> PathBuf {
    if program.components().count() > 1 || program.is_absolute() {
        return program.to_owned();
    }
    let mut places =
        path.into_iter().flat_map(std::env::split_paths).map(|directory| directory.join(program));
    places.find(|place| place.is_absolute() && place.is_file()).unwrap_or_else(|| program.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_as_shells_do() {
        let path = Some(OsStr::new("relative:/no/such:/bin:/usr/bin"));
        assert_eq!(in_path(Path::new("sh"), path), Path::new("/bin/sh"));
        assert_eq!(in_path(Path::new("no-such-program"), path), Path::new("no-such-program"));
        assert_eq!(in_path(Path::new("./sh"), path), Path::new("./sh"));
        assert_eq!(in_path(Path::new("/opt/qemu"), None), Path::new("/opt/qemu"));
    }

    #[test]
    fn versions_are_read() {
        for (text, expected) in [
            ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg)\nCopyright", Some("7.2.22")),
            ("QEMU emulator version 10.0.2", Some("10.0.2")),
            ("QEMU emulator version 8.2", Some("8.2.0")),
            ("QEMU emulator version 9.1.0-rc2 (v9)", Some("9.1.0")),
            ("QEMU emulator version x", None),
            ("", None),
        ] {
            assert_eq!(
                Version::parse(text).map(|version| version.to_string()).as_deref(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn only_features_that_a_version_knows_are_switched_off() {
        let off = |major, minor| {
            let version = Version { major, minor, micro: 0 };
            Installation { program: "q".into(), version, architecture: Architecture::Amd64 }
                .network_features_off()
        };
        assert_eq!(off(7, 2), ["queue_reset"]);
        assert_eq!(off(8, 1), ["queue_reset"]);
        for (major, minor) in [(8, 2), (9, 0), (10, 0)] {
            assert_eq!(off(major, minor), ["queue_reset", "host_uso", "guest_uso4", "guest_uso6"]);
        }
    }

    #[test]
    fn machine_types_are_versioned() {
        let version = Version { major: 7, minor: 2, micro: 22 };
        let mut qemu = Installation { program: "q".into(), version, architecture: Architecture::Amd64 };
        assert_eq!(qemu.machine_type(), "pc-q35-7.2");
        qemu.architecture = Architecture::Arm64;
        assert_eq!(qemu.machine_type(), "virt-7.2");
    }
}
