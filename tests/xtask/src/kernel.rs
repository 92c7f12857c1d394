//! `xtask kernel`: the guest kernels of the tests, in `<target>/kernels`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::package::target;
use crate::process::run_cargo;

/// Name of the kernel of Debian 13, which some tests boot beside the distribution's.
const DEBIAN_13: &str = "debian13";

/// Gets the distribution's kernel ready, which every lane of the gate boots: seconds, and again each time, because today's guest
/// program is in its initramfs.
pub(crate) fn fetch(root: &Path) -> anyhow::Result<bool> {
    let target = target(root)?;
    let lists = std::fs::read_dir("/var/lib/apt/lists").map_or(0, Iterator::count);
    ensure!(lists > 2, "apt has no lists of packages; run: apt-get update");
    let name = |name| ["kernel", "fetch", "--kernel-name", name, "--no-default", "--progress", "plain"];
    if !neonctl(root, &target, &name("fetched"))? {
        return Ok(false);
    }
    // Once: the tests that boot it bring their own first program.
    if !target.join("kernels").join(DEBIAN_13).join("vmlinux").exists()
        && !neonctl(root, &target, &[&name(DEBIAN_13)[..], &["--version", "6.12"]].concat())?
    {
        println!("kernel: without the kernel of Debian 13; the tests that boot it are skipped");
    }
    Ok(true)
}

/// Prepares the kernel of the runner's image, the newest of Debian 13 that `neonctl` knows, and returns its directory.
pub(crate) fn for_images(root: &Path, target: &Path, guest: &Path) -> anyhow::Result<PathBuf> {
    let guest = guest.display().to_string();
    let fetch = ["kernel", "fetch", "--kernel-name", "image", "--no-default", "--version", "6.12"];
    ensure!(neonctl(root, target, &[&fetch[..], &["--guest", &guest]].concat())?, "cannot fetch the kernel");
    Ok(target.join("kernels/image"))
}

/// Builds the kernel from source, unless the one that is there was built from these fragments.
pub(crate) fn build(root: &Path) -> anyhow::Result<bool> {
    let target = target(root)?;
    let store = target.join("kernels");
    let mark = store.join("built.fragments");
    let state = fragments(root)?;
    let same = std::fs::read_to_string(&mark).is_ok_and(|old| old == state);
    if same && store.join("built/kernel.json").exists() {
        println!("kernel: built already");
        return Ok(true);
    }
    let built = neonctl(
        root,
        &target,
        &["kernel", "build", "--kernel-name", "built", "--no-default", "--progress", "plain"],
    )?;
    if built {
        std::fs::write(&mark, state)?;
    }
    Ok(built)
}

/// Runs `neonctl` with a home of its own, whose kernels are those of the tests: the user's are left alone.
fn neonctl(root: &Path, target: &Path, arguments: &[&str]) -> anyhow::Result<bool> {
    let program = target.join("debug/neonctl");
    if !program.exists() {
        let build = ["build", "--locked", "--workspace", "--bins", "--quiet"];
        ensure!(run_cargo(root, &build)?, "neonctl does not build");
    }
    let home = Home::new(target)?;
    let status =
        Command::new(&program).args(arguments).env("HOME", &home.0).env_remove("XDG_DATA_HOME").status();
    Ok(status.with_context(|| format!("cannot run {}", program.display()))?.success())
}

/// A home, removed when dropped.
struct Home(PathBuf);

impl Home {
    fn new(target: &Path) -> anyhow::Result<Self> {
        let home = Self(target.join("tmp").join(format!("kernel-home-{}", std::process::id())));
        let data = home.0.join(".local/share/neonvm");
        let store = target.join("kernels");
        std::fs::create_dir_all(&data)?;
        std::fs::create_dir_all(&store)?;
        let link = data.join("kernels");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(store, link)?;
        Ok(home)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What decides about the result of a build.
fn fragments(root: &Path) -> anyhow::Result<String> {
    let mut hash = DefaultHasher::new();
    let mut names: Vec<_> = std::fs::read_dir(root.join("kernel/config"))?.collect::<Result<Vec<_>, _>>()?;
    names.sort_by_key(std::fs::DirEntry::file_name);
    for name in names {
        std::fs::read(name.path())?.hash(&mut hash);
    }
    Ok(format!("{:016x}", hash.finish()))
}
