//! The programs that are shipped, of one build for people and for images: static, so that they run on any Linux, and without the
//! paths of this computer, so that the same source gives the same bytes. `xtask release` puts them into `<target>/dist`, without
//! symbols, the debug information of each in `NAME.debug` beside it: a backtrace has files and lines wherever both lie in one
//! directory.
//!
//! Not by Cargo alone: with `split-debuginfo = "packed"` the line tables stay in the program, and stripping removes them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::package::{cargo, target};

/// Profile of what is shipped.
pub(crate) const DIST: &str = "dist";
/// What `xtask release` puts into the directory of releases.
const PROGRAMS: [&str; 3] = ["neonctl", "neond", "neonvm-runner"];
/// What releases are built for.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// How much of the symbols a program loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strip {
    /// Names of functions stay, so that a backtrace can be read without the debug information.
    Debug,
    All,
}

pub(crate) fn release(root: &Path) -> anyhow::Result<bool> {
    let target = target(root)?;
    if !build(root, &target, TRIPLE, DIST)? {
        return Ok(false);
    }
    let to = target.join(DIST);
    std::fs::create_dir_all(&to)?;
    for program in PROGRAMS {
        let made = strip(&target.join(TRIPLE).join(DIST).join(program), &to, Strip::All)?;
        let starts = Command::new(&made).arg("--version").output();
        ensure!(starts.is_ok_and(|output| output.status.success()), "{} does not start", made.display());
        let bytes = std::fs::metadata(&made)?.len();
        println!("{:3}.{} MB  {}", bytes / 1_000_000, bytes / 100_000 % 10, made.display());
    }
    Ok(true)
}

/// Builds the programs for a target into `<target>/<triple>/<profile>`. For [`DIST`] all of them, so that features, and with them the
/// bytes, are the same whatever is asked for.
pub(crate) fn build(root: &Path, target: &Path, triple: &str, profile: &str) -> anyhow::Result<bool> {
    check_target(triple)?;
    let mut command = cargo();
    command.args(["build", "--locked", "--profile", profile, "--target", triple, "-p", "neonvm-neond"]);
    if profile == DIST {
        command.args(["-p", "neonvm-cli"]);
    }
    command.env("RUSTFLAGS", flags(root, triple)).env("CARGO_TARGET_DIR", target).current_dir(root);
    Ok(command.status().context("cannot run cargo build")?.success())
}

/// Relocations in their short form, which a static program undoes by itself; where the linker can, one copy of functions that are alike.
fn flags(root: &Path, triple: &str) -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    let cargo = std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{home}/.cargo"));
    let root = root.display();
    // rustc links with lld there, elsewhere with what the C compiler takes.
    let icf = if triple == TRIPLE { " -C link-arg=-Wl,--icf=all" } else { "" };
    format!(
        "-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs{icf} --remap-path-prefix={cargo}=/cargo \
         --remap-path-prefix={root}=/neonvm"
    )
}

/// Copies a program into a directory without its debug information, which is put beside it if all symbols go.
pub(crate) fn strip(from: &Path, to: &Path, how: Strip) -> anyhow::Result<PathBuf> {
    let name = from.file_name().context("a program has a name")?;
    let made = to.join(name);
    match how {
        Strip::Debug => objcopy(&["--strip-debug"], from, &made)?,
        Strip::All => {
            let mut debug = made.clone();
            debug.set_extension("debug");
            objcopy(&["--only-keep-debug"], from, &debug)?;
            objcopy(&["--strip-all", &format!("--add-gnu-debuglink={}", debug.display())], from, &made)?;
        }
    }
    Ok(made)
}

/// That of Rust's own LLVM, which knows every architecture, else that of the system.
fn objcopy(flags: &[&str], from: &Path, to: &Path) -> anyhow::Result<()> {
    let own = libraries(TRIPLE)?.with_file_name("bin").join("rust-objcopy");
    let program = if own.is_file() { own } else { "objcopy".into() };
    let mut command = Command::new(&program);
    if let Some(shared) = sysroot_libraries(&program) {
        // Its LLVM is a shared library, which is found by itself only when rustup starts cargo.
        command.env("LD_LIBRARY_PATH", shared);
    }
    let status = command.args(flags).arg(from).arg(to).status();
    let status = status.with_context(|| format!("cannot run {}", program.display()))?;
    if !status.success() {
        bail!("{} failed for {}", program.display(), from.display());
    }
    Ok(())
}

/// Directory of the shared libraries of the toolchain that has a program: `lib` of `SYSROOT/lib/rustlib/TARGET/bin/PROGRAM`.
fn sysroot_libraries(program: &Path) -> Option<PathBuf> {
    program
        .ancestors()
        .nth(4)
        .filter(|path| path.file_name().is_some_and(|name| name == "lib"))
        .map(Path::to_owned)
}

/// Directory of the standard library for a target.
fn libraries(triple: &str) -> anyhow::Result<PathBuf> {
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", triple]).output();
    Ok(PathBuf::from(String::from_utf8_lossy(&output.context("cannot run rustc")?.stdout).trim()))
}

/// Whether programs can be compiled for a target here.
fn check_target(triple: &str) -> anyhow::Result<()> {
    ensure!(
        libraries(triple)?.is_dir(),
        "rustc has no standard library for {triple}; install it (rustup target add {triple}) with a C compiler for it, or give \
         programs that were built elsewhere with --programs DIR"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_without_library_is_refused_with_what_to_do() {
        let error = check_target("sparc64-unknown-linux-gnu").unwrap_err().to_string();
        assert!(error.contains("rustup target add sparc64-unknown-linux-gnu"), "{error}");
    }

    #[test]
    fn a_stripped_program_still_runs_and_has_its_debug_information_beside_it() {
        let directory = std::env::temp_dir().join(format!("xtask-strip-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let own = std::env::current_exe().unwrap();
        for how in [Strip::Debug, Strip::All] {
            let made = strip(&own, &directory, how).unwrap();
            assert!(Command::new(&made).arg("--list").output().unwrap().status.success());
            assert!(std::fs::metadata(&made).unwrap().len() < std::fs::metadata(&own).unwrap().len());
        }
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 2);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
