//! What a test needs of the computer that runs it. A need that is not met is reported to the test runner when it is found, so a
//! test cannot pass over it in silence.

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Environment variable with the file to which the skip of a test is reported, one reason a line.
pub const SKIP_FILE: &str = "NEONVM_TEST_SKIP_FILE";

/// The result of looking for what a test needs.
pub type Need<T = ()> = Result<T, Missing>;

/// A need that is not met. To make one is to report it.
#[derive(Clone, Debug)]
pub struct Missing {
    reason: String,
}

impl Missing {
    /// Something that `make test` installs or makes: a program, a kernel. Where `CI=true` it is required.
    ///
    /// # Panics
    /// Where `CI=true`: there a test is not skipped for lack of it.
    #[must_use]
    pub fn installable(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        let required = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(!required, "{reason}; with CI=true this is required, because `make test` installs it");
        Self::report(reason)
    }

    /// A property of the computer or of the user that `make test` cannot change: the architecture, root, a kernel setting.
    #[must_use]
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::report(reason.into())
    }

    /// Why the test is skipped.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    #[allow(
        clippy::print_stderr,
        reason = "without the runner of `cargo xtask test` this is the only report"
    )]
    fn report(reason: String) -> Self {
        eprintln!("SKIP {reason}");
        if let Some(file) = std::env::var_os(SKIP_FILE) {
            append(Path::new(&file), &reason);
        }
        Self { reason }
    }
}

fn append(file: &Path, reason: &str) {
    let line = format!("{}\n", reason.replace('\n', " "));
    let written = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    // A skip that cannot be reported would count as passed.
    assert!(written.is_ok(), "the skip cannot be reported to {}: {written:?}", file.display());
}

/// Directories in which programs are looked for: `PATH`, and those of the administrator's programs, which users may not have in it.
fn search_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    directories.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    directories
}

/// Where a program is, if it is installed.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    search_path().into_iter().map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// A program that `make test` installs.
///
/// # Errors
/// If it is not installed.
pub fn program(name: &str) -> Need<PathBuf> {
    find_program(name).ok_or_else(|| Missing::installable(format!("{name} is not installed")))
}

/// Several such programs.
///
/// # Errors
/// If one is not installed.
pub fn programs(names: &[&str]) -> Need {
    names.iter().try_for_each(|name| program(name).map(drop))
}

/// A program that `make test` does not install.
///
/// # Errors
/// If it is not installed.
pub fn optional_program(name: &str) -> Need<PathBuf> {
    find_program(name).ok_or_else(|| Missing::unavailable(format!("{name} is not installed")))
}

/// `kubectl`, for tests about it, not older than version 1.`minor`. It is not needed for anything else.
///
/// # Errors
/// If it is not installed or older.
pub fn kubectl(minor: u32) -> Need<PathBuf> {
    let path = optional_program("kubectl")?;
    let output = std::process::Command::new(&path).args(["version", "--client", "-o", "json"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    match minor_version(&text) {
        Some(found) if found >= minor => Ok(path),
        found => Err(Missing::unavailable(format!(
            "kubectl 1.{minor} or later is not installed (found {})",
            found.map_or_else(|| "an unknown version".to_owned(), |found| format!("1.{found}"))
        ))),
    }
}

/// The minor version in the output of `kubectl version --client -o json`, such as 32 of `"minor": "32+"`.
fn minor_version(text: &str) -> Option<u32> {
    let rest = text.split("\"minor\":").nth(1)?.split('"').nth(1)?;
    rest.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}

/// The rights of root.
///
/// # Errors
/// If the test runs as another user.
pub fn root() -> Need {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    // The second one is the effective user (proc_pid_status(5)).
    match users.split_whitespace().nth(1) {
        Some("0") => Ok(()),
        _ => Err(Missing::unavailable("the tests do not run as root")),
    }
}

/// Network namespaces: root, and the programs to make them and what is in them.
///
/// # Errors
/// If one of them is missing.
pub fn network_namespaces() -> Need {
    root()?;
    programs(&["ip", "nft"])
}

/// An x86-64 computer, for which the kernels of the tests are.
///
/// # Errors
/// On others.
pub fn amd64() -> Need {
    match std::env::consts::ARCH {
        "x86_64" => Ok(()),
        other => Err(Missing::unavailable(format!("the guest kernels are for x86-64, this is {other}"))),
    }
}

/// QEMU for x86-64 guests, on a computer with that architecture.
///
/// # Errors
/// If one of both is missing.
pub fn qemu() -> Need {
    amd64()?;
    program("qemu-system-x86_64").map(drop)
}

/// The target directory of the running test program, `<target>/<profile>/deps/<program>`.
#[must_use]
pub fn target_directory() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.ancestors().nth(3).map(Path::to_path_buf).unwrap_or_default()
}

/// The directory of a guest kernel, with `vmlinux` in it: the one that `NEONVM_TEST_KERNEL` names, or else the fetched one, which
/// the lane `kernel` of `make test` gets ready.
///
/// # Errors
/// If it is not there.
pub fn kernel() -> Need<PathBuf> {
    let name = std::env::var("NEONVM_TEST_KERNEL").unwrap_or_else(|_| "fetched".to_owned());
    named_kernel(&name, "cargo xtask kernel --fetch")
}

/// The directory of the kernel that `make soak` builds from source.
///
/// # Errors
/// If it was not built.
pub fn built_kernel() -> Need<PathBuf> {
    let directory = kernels().join("built");
    if directory.join("vmlinux").is_file() {
        return Ok(directory);
    }
    Err(Missing::unavailable(
        "no kernel was built from source, as `make soak` does: run `cargo xtask kernel`",
    ))
}

/// The directory of the kernel of Debian 13, which the lane `kernel` of `make test` downloads if it can.
///
/// # Errors
/// If it is not there.
pub fn debian_13_kernel() -> Need<PathBuf> {
    let directory = kernels().join("debian13");
    if directory.join("vmlinux").is_file() {
        return Ok(directory);
    }
    Err(Missing::unavailable("the kernel of Debian 13 was not downloaded: run `cargo xtask kernel --fetch`"))
}

/// Where the kernels of tests are kept.
#[must_use]
pub fn kernels() -> PathBuf {
    target_directory().join("kernels")
}

fn named_kernel(name: &str, remedy: &str) -> Need<PathBuf> {
    let directory = kernels().join(name);
    if directory.join("vmlinux").is_file() {
        return Ok(directory);
    }
    Err(Missing::installable(format!("no guest kernel in {}: run `{remedy}`", directory.display())))
}

/// The programs of the newest PostgreSQL server that is installed, `/usr/lib/postgresql/<version>/bin`, and the rights to start
/// it as its user.
///
/// # Errors
/// If there is none, or the test does not run as root.
pub fn postgresql() -> Need<PathBuf> {
    root()?;
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    found.retain(|directory| directory.join("initdb").is_file());
    found.sort();
    let user = std::fs::read_to_string("/etc/passwd").is_ok_and(|text| text.contains("\npostgres:"));
    match found.pop() {
        Some(directory) if user => Ok(directory),
        _ => Err(Missing::installable("no PostgreSQL server is installed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_reported_to_the_runner() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("skips");
        append(&file, "no\nkernel");
        append(&file, "no QEMU");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "no kernel\nno QEMU\n");
    }

    #[test]
    fn versions_of_kubectl_are_read() {
        let text = |minor: &str| format!(r#"{{"clientVersion": {{"major": "1", "minor": "{minor}"}}}}"#);
        assert_eq!(minor_version(&text("32")), Some(32));
        assert_eq!(minor_version(&text("20+")), Some(20));
        assert_eq!(minor_version("none"), None);
    }

    #[test]
    fn the_target_directory_holds_the_test_programs() {
        assert!(target_directory().join("debug").is_dir() || target_directory().join("release").is_dir());
    }
}
