//! `neond history-dir`: makes the agent's directory on a node writable for the agent, which does not run as root. The first
//! container of the agent's pods runs it.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

/// Flags.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// User ID of the agent
    #[arg(long, value_name = "UID")]
    owner: u32,
}

/// Makes the directory, for its owner alone. What is right already is left alone: then no right to change it is needed.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let shown = args.directory.display();
    prepare(&args.directory, args.owner).with_context(|| format!("cannot prepare the directory {shown}"))
}

fn prepare(directory: &Path, owner: u32) -> anyhow::Result<()> {
    if !directory.exists() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let found = fs::symlink_metadata(directory)?;
    ensure!(found.is_dir(), "it is no directory");
    // A process that is not the owner may not change the mode, and the container of the manifest may only change owners: where an
    // administrator has changed the mode of the agent's directory, this process becomes the owner first.
    let own = rustix::process::geteuid().as_raw();
    let mut has = found.uid();
    if found.mode() & 0o777 != 0o700 {
        if has != own {
            chown(directory, Some(own), None)?;
            has = own;
        }
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
    }
    if has != owner {
        chown(directory, Some(owner), None)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_its_owners_alone() {
        let place = tempfile::tempdir().unwrap();
        let own = fs::metadata(place.path()).unwrap().uid();
        let directory = place.path().join("a/history");
        prepare(&directory, own).unwrap();
        prepare(&directory, own).unwrap();
        let made = fs::metadata(&directory).unwrap();
        assert_eq!((made.mode() & 0o777, made.uid()), (0o700, own));
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        prepare(&directory, own).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&directory, &link).unwrap();
        assert!(prepare(&link, own).unwrap_err().to_string().contains("no directory"));
    }
}
