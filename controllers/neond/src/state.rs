//! `neond state`: the state of a stopped cluster as a whole; what `neonctl local check`, `backup` and `restore` run.

use std::io::{BufReader, BufWriter};
use std::path::PathBuf;

use anyhow::Context as _;
use neonvm_apiserver::disk::{Snapshot, check, restore};

/// Flags.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Verify every record and the keys; prints JSON
    Check(ClusterDirectory),
    /// Write a backup to standard output
    Backup(ClusterDirectory),
    /// Replace the state with the backup on standard input; prints the header of the backup, and whether the cluster is a new one
    Restore {
        #[command(flatten)]
        place: ClusterDirectory,
        /// Replace existing state
        #[arg(long)]
        force: bool,
    },
}

#[derive(clap::Args, Debug)]
struct ClusterDirectory {
    /// Directory of the cluster; its last part is the cluster's name
    #[arg(long)]
    data_dir: PathBuf,
}

/// Does one thing and ends.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    crate::service::close_files();
    let out = std::io::stdout();
    match &args.command {
        Command::Check(place) => serde_json::to_writer(out.lock(), &check(&place.data_dir))?,
        Command::Backup(place) => {
            let snapshot = Snapshot::of_stopped(&place.data_dir)?.with_files(&place.data_dir)?;
            let name = place.data_dir.file_name().unwrap_or_default().to_string_lossy();
            snapshot.write(&name, BufWriter::new(out.lock())).context("cannot write the backup")?;
        }
        Command::Restore { place, force } => {
            let restored = restore(&place.data_dir, BufReader::new(std::io::stdin().lock()), *force)?;
            serde_json::to_writer(out.lock(), &restored)?;
        }
    }
    Ok(())
}
