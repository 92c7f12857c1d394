//! The programs, a home for them, and fixtures that are made once and kept for later runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// The directory of the programs, built if they are not.
pub(crate) fn programs() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = neonvm_e2e::programs("disk").unwrap();
        let guest = neonvm_e2e::cargo().args(["xtask", "guest"]).status().unwrap();
        assert!(guest.success(), "the guest does not build");
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

/// A person with a home; kernels are shared by all of them.
pub(crate) struct Machine {
    home: tempfile::TempDir,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let home = tempfile::Builder::new().prefix("home-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let data = home.path().join(".local/share/neonvm");
        std::fs::create_dir_all(&data).unwrap();
        std::os::unix::fs::symlink(kernels(), data.join("kernels")).unwrap();
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
        // An answer may be slow on a machine that has much to do.
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

/// A program must be there, or the test says what it skips.
pub(crate) fn has(programs: &[&str], what: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> =
        std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]).collect();
    let missing: Vec<&&str> = programs
        .iter()
        .filter(|program| !directories.iter().any(|directory| directory.join(program).is_file()))
        .collect();
    if !missing.is_empty() {
        println!("SKIP {what}: not installed: {missing:?}");
    }
    missing.is_empty()
}

pub(crate) fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("SKIP {what}: needs root");
    }
    root
}

/// Makes something once for all runs: in a directory beside its place, moved there when it is whole.
fn once(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let place = kept().join(name);
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

/// The root directory of `examples/busybox`.
pub(crate) fn busybox() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| once("busybox", |path| script("examples/busybox/make-root.sh", path)))
}

/// The root directory of `examples/postgres`.
pub(crate) fn postgres() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| once("postgres", |path| script("examples/postgres/make-root.sh", path)))
}

/// A real parser of metrics: Prometheus' own, unpacked from its package without installing a server.
pub(crate) fn promtool() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let tree = once("prometheus", |path| {
            std::fs::create_dir(path).unwrap();
            let line = "apt-get download -q -o APT::Sandbox::User=root prometheus >/dev/null && dpkg-deb --extract prometheus_*.deb . && rm prometheus_*.deb";
            assert!(Command::new("sh").args(["-c", line]).current_dir(path).status().unwrap().success());
        });
        tree.join("usr/bin/promtool")
    })
}

/// The kernels that all tests share: the fetched one is made here, the built one by `cargo xtask kernel`.
fn kernels() -> PathBuf {
    let path = repository().join("target/kernels");
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// The distribution's kernel with today's guest as its initramfs' init.
pub(crate) fn fetched_kernel() -> &'static str {
    static FETCHED: OnceLock<()> = OnceLock::new();
    FETCHED.get_or_init(|| {
        let machine = Machine::new();
        machine.good(&["kernel", "fetch", "--kernel-name", "fetched", "--no-default"]);
    });
    "fetched"
}

/// The kernel that was built from source, if it was.
pub(crate) fn built_kernel() -> Option<&'static str> {
    let there = kernels().join("built/kernel.json").exists();
    if !there {
        println!("SKIP built kernel: there is none; cargo xtask kernel builds it");
    }
    there.then_some("built")
}
