//! Building a kernel: unpack, configure, check that nothing asked for was dropped, compile, store.
//!
//! Reproducible: build user, host and time are fixed, and paths do not enter the result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::config::{self, RequestedOptions};
use crate::error::Doing as _;
use crate::run::{self, run};
use crate::store::{self, Kernel, Manifest, Store};
use crate::{Error, Progress, source, vmlinux};

/// Programs and headers that a build needs, each with its Debian package.
const TOOLS: [(&str, &str); 8] = [
    ("make", "make"),
    ("gcc", "gcc"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("tar", "tar"),
    ("/usr/include/libelf.h", "libelf-dev"),
    ("/usr/include/openssl/opensslv.h", "libssl-dev"),
];

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Tarball or unpacked tree; the distribution's source package if none.
    pub source: Option<PathBuf>,
    /// Version that the source must have, whole or its beginning.
    pub version: Option<String>,
    pub fragments: Vec<PathBuf>,
    /// Compilers at the same time; 0: one for each processor.
    pub jobs: usize,
    /// Name in the store; `VERSION-neonvm` if none.
    pub name: Option<String>,
    /// Whether it becomes the default.
    pub default: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    pub version: String,
    pub options: usize,
    pub config: String,
}

/// Asks whatever runs to stop; its error is then [`Error::Interrupted`].
pub fn interrupt() {
    run::interrupt();
}

/// Configures the source and checks the outcome, without compiling. Takes seconds.
pub fn check_config(options: &Options, progress: &dyn Progress) -> Result<Checked, Error> {
    let work = tempfile::tempdir().doing("make a directory in", &std::env::temp_dir())?;
    Ok(configure(options, work.path(), progress)?.checked)
}

/// Builds a kernel and stores it.
///
/// # Errors
/// As [`check_config`], and if it does not compile or cannot be stored.
pub fn build(options: &Options, store: &Store, progress: &dyn Progress) -> Result<Kernel, Error> {
    let workshop = store.workshop()?;
    // Beside the store, not in /tmp: a build needs a gigabyte.
    let work = store.workshop()?;
    let Configured { tree, checked, .. } = configure(options, work.path(), progress)?;
    let jobs = match options.jobs {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        jobs => jobs,
    };
    progress.begin("build", &format!("x86_64, {jobs} jobs"));
    let mut command = make(&tree, &out(work.path()));
    command.arg(format!("-j{jobs}")).args(["bzImage", "vmlinux"]);
    run(&mut command, "make", progress)?;
    progress.end("");
    progress.begin("store", "");
    let built = |name: &str| out(work.path()).join(name);
    copy(&built("arch/x86/boot/bzImage"), &workshop.path().join(store::VMLINUZ))?;
    copy(&built(".config"), &workshop.path().join(store::CONFIG))?;
    let mut strip = Command::new("objcopy");
    strip.arg("--strip-all").arg(built("vmlinux")).arg(workshop.path().join(store::VMLINUX));
    run(&mut strip, "binutils", progress)?;
    let path = workshop.path().join(store::VMLINUX);
    if !vmlinux::has_pvh_entry(&std::fs::read(&path).doing("read", &path)?) {
        return Err(Error::malformed("the kernel that was built", "it has no PVH entry"));
    }
    let version = format!("{}-neonvm", checked.version);
    let manifest = Manifest {
        name: options.name.clone().unwrap_or_else(|| version.clone()),
        version,
        origin: format!("source {}", checked.version),
        built: true,
        files: BTreeMap::new(),
    };
    let kernel = store.put(workshop, manifest, options.default)?;
    progress.end(&kernel.manifest.name);
    Ok(kernel)
}

struct Configured {
    tree: PathBuf,
    checked: Checked,
}

fn out(work: &Path) -> PathBuf {
    work.join("out")
}

fn configure(options: &Options, work: &Path, progress: &dyn Progress) -> Result<Configured, Error> {
    let requested = requested(&options.fragments)?;
    for (program, package) in TOOLS {
        // Joined with any directory, an absolute path is itself.
        let there = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .any(|directory| directory.join(program).is_file());
        if !there {
            return Err(Error::Missing { program: program.to_owned(), package });
        }
    }
    progress.begin("source", "");
    let (tree, version) =
        source::unpack(options.source.as_deref(), options.version.as_deref(), work, progress)?;
    progress.end(&version);
    if !version.starts_with(source::SERIES) {
        progress.note(&format!(
            "the fragments are written for {}, tested with {}",
            source::SERIES,
            source::TESTED
        ));
    }
    progress.begin("config", &format!("{} options", requested.len()));
    let out = out(work);
    std::fs::create_dir_all(&out).doing("make", &out)?;
    run(make(&tree, &out).arg("tinyconfig"), "make", progress)?;
    let path = out.join(".config");
    let base = std::fs::read_to_string(&path).doing("read", &path)?;
    // The last of several lines for an option counts.
    std::fs::write(&path, base + &config::render(&requested)).doing("write", &path)?;
    run(make(&tree, &out).arg("olddefconfig"), "make", progress)?;
    let config = std::fs::read_to_string(&path).doing("read", &path)?;
    let dropped = config::dropped(&requested, &config, false);
    if !dropped.is_empty() {
        return Err(Error::Dropped { options: dropped.iter().map(ToString::to_string).collect() });
    }
    progress.end("0 silently dropped");
    Ok(Configured { tree, checked: Checked { version, options: requested.len(), config } })
}

fn requested(more: &[PathBuf]) -> Result<RequestedOptions, Error> {
    let mut requested = config::own_options()?;
    for path in more {
        let text = std::fs::read_to_string(path).doing("read", path)?;
        config::read_fragment(&mut requested, &path.display().to_string(), &text)?;
    }
    Ok(requested)
}

/// `make` with everything fixed that would otherwise differ between two builds.
fn make(tree: &Path, out: &Path) -> Command {
    let mut command = Command::new("make");
    command.arg("--silent").arg("-C").arg(tree).arg(format!("O={}", out.display()));
    command.args([
        "ARCH=x86_64",
        "KBUILD_BUILD_USER=neonvm",
        "KBUILD_BUILD_HOST=neonvm",
        "KBUILD_BUILD_VERSION=1",
    ]);
    command.arg("KBUILD_BUILD_TIMESTAMP=1970-01-01 00:00:00 UTC");
    command.arg(format!("KCFLAGS=-fmacro-prefix-map={0}/= -ffile-prefix-map={0}/=", tree.display()));
    // Settings of who runs it must not change the result.
    for name in ["MAKEFLAGS", "MFLAGS", "CFLAGS", "LDFLAGS", "KCONFIG_CONFIG", "CROSS_COMPILE"] {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C").env("TZ", "UTC");
    command
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    std::fs::copy(from, to).doing("copy", from).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;

    #[test]
    fn a_fragment_that_contradicts_is_refused_before_anything_is_unpacked() {
        let directory = tempfile::tempdir().unwrap();
        let mine = directory.path().join("mine.config");
        std::fs::write(&mine, "CONFIG_SMP=n\n").unwrap();
        let options =
            Options { fragments: vec![mine], source: Some("/nowhere".into()), ..Options::default() };
        let error = check_config(&options, &Silent).unwrap_err();
        assert!(error.to_string().starts_with("CONFIG_SMP is asked for twice"), "{error}");
    }
}
