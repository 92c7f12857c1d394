//! `xtask demo`: the main job from nothing to a VM that follows its load and moves under it.

mod prepare;
mod record;
mod stage;
mod story;

use std::path::Path;

use anyhow::ensure;

pub(crate) use self::record::run as record;
use self::stage::Stage;
use crate::process::{is_root, run_cargo};

/// The profile whose programs play: optimised less than what is shipped, and built in less time.
const PROFILE: &str = "quick";

/// Runs the demonstration; true if every step succeeded. With `keep` the VM goes on living.
pub(crate) fn run(root: &Path, keep: bool) -> anyhow::Result<bool> {
    if !is_root() {
        println!(
            "the demonstration makes network namespaces and a Debian root directory: run it as root: sudo env \"PATH=$PATH\" \"HOME=$HOME\" make demo"
        );
        return Ok(false);
    }
    let stage = Stage::new(root)?;
    stage.title("Build neonctl, neond and the guest program");
    let programs =
        ["build", "--profile", PROFILE, "--locked", "--quiet", "-p", "neonvm-cli", "-p", "neonvm-neond"];
    ensure!(crate::guest::run(root)? && run_cargo(root, &programs)?, "the programs do not build");
    let outcome = story::run(&stage);
    if let Err(error) = &outcome {
        println!("\nthe demonstration stopped: {error:#}");
    }
    if keep && outcome.is_ok() {
        farewell(&stage);
        return Ok(true);
    }
    stage.title("Clean up");
    // Whatever went wrong before, nothing stays behind.
    let gone = stage.neonctl(&["local", "down", "--name", "demo", "--delete"]);
    if let Err(error) = &gone {
        println!("{error:#}");
    }
    stage.title("done");
    Ok(outcome.is_ok() && gone.is_ok())
}

/// Removes what a demonstration left that was broken off.
pub(crate) fn clean_up(root: &Path) -> anyhow::Result<bool> {
    let stage = Stage::new(root)?;
    println!();
    Ok(stage.neonctl(&["local", "down", "--name", "demo", "--delete"]).is_ok())
}

fn farewell(stage: &Stage) {
    let directory = stage.programs.display().to_string();
    println!("\nThe cluster and its VM live on. To go on:\n");
    println!("  export PATH={directory}:$PATH KUBECONFIG={}", stage.kubeconfig().display());
    for variable in ["DATA", "CACHE", "STATE"] {
        println!("  export XDG_{variable}_HOME={}", stage.kept.join(variable.to_lowercase()).display());
    }
    println!("  neonctl vm ssh pg                      log in");
    println!("  neonctl vm console pg                  its serial console; leave with Ctrl-]");
    println!("  neonctl vm scale pg --cpu 2 --wait     change its size");
    println!("  neonctl vm migrate pg                  move it to the other node");
    println!("  neonctl vm logs pg -f                  what it writes");
    println!("  neonctl top vms                        what it uses");
    println!("  kubectl get neonvm -o wide             the same with kubectl");
    println!("  neonctl local down --name demo --delete   the end");
}
