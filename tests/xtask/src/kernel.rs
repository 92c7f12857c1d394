//! `xtask kernel`: the guest kernel from source, once for each state of its fragments.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

/// Builds the kernel that the disk lane boots, unless the one that is there is of these fragments.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let store = root.join("target/kernels");
    std::fs::create_dir_all(&store)?;
    let mark = store.join("built.fragments");
    let state = fragments(root)?;
    let there = std::fs::read_to_string(&mark).is_ok_and(|old| old == state);
    if there && store.join("built/kernel.json").exists() {
        println!("kernel: built already");
        return Ok(true);
    }
    // The store of a home of its own: the person's kernels are theirs.
    let home = tempfile_home(root)?;
    let link = home.join(".local/share/neonvm");
    std::fs::create_dir_all(&link)?;
    let _ = std::fs::remove_file(link.join("kernels"));
    std::os::unix::fs::symlink(&store, link.join("kernels"))?;
    let neonctl = root.join("target/debug/neonctl");
    let status = Command::new(&neonctl)
        .args(["kernel", "build", "--kernel-name", "built", "--no-default", "--progress", "plain"])
        .env("HOME", &home)
        .env_remove("XDG_DATA_HOME")
        .status()
        .with_context(|| format!("cannot run {}", neonctl.display()))?;
    std::fs::remove_dir_all(&home)?;
    if status.success() {
        std::fs::write(&mark, state)?;
    }
    Ok(status.success())
}

fn tempfile_home(root: &Path) -> anyhow::Result<std::path::PathBuf> {
    let home = root.join("target/tmp").join(format!("kernel-home-{}", std::process::id()));
    std::fs::create_dir_all(&home)?;
    Ok(home)
}

/// What decides about the outcome.
fn fragments(root: &Path) -> anyhow::Result<String> {
    let mut hash = DefaultHasher::new();
    let mut names: Vec<_> = std::fs::read_dir(root.join("kernel/config"))?.collect::<Result<Vec<_>, _>>()?;
    names.sort_by_key(std::fs::DirEntry::file_name);
    for name in names {
        std::fs::read(name.path())?.hash(&mut hash);
    }
    Ok(format!("{:016x}", hash.finish()))
}
