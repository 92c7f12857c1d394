//! `completion`

use clap_complete::env::Shells;

use crate::args::Shell;
use crate::error::{Code, Error, Result};
use crate::report::Report;

/// The script that makes a shell ask this program for completions.
pub(super) fn run(shell: Shell) -> Result<Report> {
    let name = match shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
        Shell::PowerShell => "powershell",
        Shell::Elvish => "elvish",
    };
    let failed =
        |cause: String| Error::new(Code::Failed, format!("cannot generate a script for {name}")).cause(cause);
    let shells = Shells::builtins();
    let completer = shells.completer(name).ok_or_else(|| failed("the shell is unknown".into()))?;
    let mut script = Vec::new();
    completer
        .write_registration("COMPLETE", "neonctl", "neonctl", "neonctl", &mut script)
        .map_err(|error| failed(error.to_string()))?;
    Ok(Report::text(String::from_utf8_lossy(&script).into_owned()))
}
