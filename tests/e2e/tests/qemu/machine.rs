//! The programs, a home for them, and fixtures that are made once and kept for later runs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use neonvm_test_support::{Need, needs};

/// The directory of the programs, built if they are not.
pub(crate) fn programs() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = neonvm_e2e::programs().unwrap();
        neonvm_e2e::guest().unwrap();
        directory
    })
}

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Kept between runs: what is slow to make and the same every time.
fn kept() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("disk");
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// A user with a home; kernels are shared by all of them.
pub(crate) struct Machine {
    home: tempfile::TempDir,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let home = tempfile::Builder::new().prefix("home-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let data = home.path().join(".local/share/neonvm");
        std::fs::create_dir_all(&data).unwrap();
        let kernels = needs::kernels();
        std::fs::create_dir_all(&kernels).unwrap();
        std::os::unix::fs::symlink(kernels, data.join("kernels")).unwrap();
        Self { home }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// `neonctl` in the home, with a clean environment.
    pub(crate) fn neonctl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(programs().join("neonctl"));
        command.args(arguments).env_clear().env("HOME", self.home.path()).current_dir(self.home.path());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).stdin(Stdio::null());
        // An answer may be slow on a host that has much to do.
        command.env("NEONCTL_REQUEST_TIMEOUT", "60s");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.neonctl(arguments).output().unwrap()
    }

    /// Standard output of a command that must succeed.
    pub(crate) fn good(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Exit code and standard error of a command that must fail.
    pub(crate) fn bad(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?} succeeded: {text}");
        (output.status.code().unwrap_or(-1), text)
    }

    /// Names in the home besides hidden ones.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.home.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !matches!(name.as_str(), ".local" | ".cache" | ".config"));
        names.sort();
        names
    }
}

/// Makes something once for all runs: in a directory beside its place, moved there when it is whole. A test in another process
/// that needs the same waits for it.
pub(crate) fn once(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let place = kept().join(name);
    if place.exists() {
        return place;
    }
    let lock = File::create(kept().join(format!("{name}.lock"))).unwrap();
    // Released when the file is closed, also by the end of a process that was killed.
    lock.lock().unwrap();
    if !place.exists() {
        let work = tempfile::Builder::new().prefix("making-").tempdir_in(kept()).unwrap();
        let inside = work.path().join(name);
        make(&inside);
        std::fs::rename(&inside, &place).unwrap();
    }
    place
}

fn script(script: &str, argument: &Path) {
    let output = Command::new(repository().join(script)).arg(argument).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What the root directory of `examples/busybox` is made with.
pub(crate) const FIXTURE_TOOLS: [&str; 2] = ["apt-get", "dpkg-deb"];

/// The root directory of `examples/busybox`, which is made with [`FIXTURE_TOOLS`].
pub(crate) fn busybox() -> PathBuf {
    once("busybox", |path| script("examples/busybox/make-root.sh", path))
}

/// The root directory of `examples/postgres`, which is made with [`POSTGRES_TOOLS`] as root.
pub(crate) fn postgres() -> PathBuf {
    once("postgres-17", |path| script("examples/postgres/make-root.sh", path))
}

/// The root directory of `examples/pg16-disk-test`, which is made with [`PG16_TOOLS`].
pub(crate) fn pg16() -> PathBuf {
    once("pg16", |path| script("examples/pg16-disk-test/make-root.sh", path))
}

/// What that root directory is made with.
pub(crate) const PG16_TOOLS: [&str; 5] = ["apt-get", "dpkg-deb", "pip3", "python3", "cc"];

/// What the database's root directory is made with, and its client.
pub(crate) const POSTGRES_TOOLS: [&str; 2] = ["debootstrap", "psql"];

/// A real parser of metrics: Prometheus' own, unpacked from its package without installing a server.
pub(crate) fn promtool() -> PathBuf {
    let tree = once("prometheus", |path| {
        std::fs::create_dir(path).unwrap();
        let line = "apt-get download -q -o APT::Sandbox::User=root prometheus >/dev/null && dpkg-deb --extract prometheus_*.deb . && rm prometheus_*.deb";
        assert!(Command::new("sh").args(["-c", line]).current_dir(path).status().unwrap().success());
    });
    tree.join("usr/bin/promtool")
}

/// Name of the guest kernel to boot.
///
/// # Errors
/// If it is not there.
pub(crate) fn kernel() -> Need<String> {
    let directory = needs::kernel()?;
    Ok(directory.file_name().unwrap_or_default().to_string_lossy().into_owned())
}
