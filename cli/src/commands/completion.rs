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
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if matches!(shell, Shell::Zsh) {
        script.push_str(AUTOLOADED);
    }
    Ok(Report::text(script))
}

/// In a directory of `fpath` the script is the body of the function that zsh calls for the first completion, which it has to answer
/// itself.
const AUTOLOADED: &str = r#"
if [[ "$funcstack[1]" == _neonctl ]]; then
    _clap_dynamic_completer_neonctl "$@"
fi
"#;
