//! `completion` and `man`: what is made of the command tree.

use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_complete::env::Shells;
use neonvm_builder::out;

use crate::args::{Args, Man, Shell};
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

/// Writes a page for each command into a directory, or prints that of the program.
pub(super) fn man(args: &Man) -> Result<Report> {
    let mut root = Args::command();
    root.build();
    let Some(directory) = &args.out else {
        return Ok(Report::text(page(&root, "neonctl")?));
    };
    std::fs::create_dir_all(directory).map_err(|error| Error::file("make", directory, &error))?;
    let mut count = 0;
    write(&root, "neonctl", directory, &mut count)?;
    Ok(Report::text(format!(
        "{count} pages in {}; read one: man -l {}\n",
        directory.display(),
        directory.join("neonctl.1").display()
    )))
}

fn page(command: &Command, title: &str) -> Result<String> {
    let failed =
        |error: std::io::Error| Error::new(Code::Failed, "cannot make the page").cause(error.to_string());
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).title(title).render(&mut text).map_err(failed)?;
    String::from_utf8(text)
        .map_err(|error| Error::new(Code::Failed, "cannot make the page").cause(error.to_string()))
}

/// The page of a command and those of the commands below it, as `neonctl-vm-create.1`.
fn write(command: &Command, name: &str, directory: &Path, count: &mut usize) -> Result<()> {
    let path = directory.join(format!("{name}.1"));
    let text = page(command, name)?;
    out::text(&path, &text).map_err(|error| Error::file("write", &path, &error))?;
    *count += 1;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        write(below, &format!("{name}-{}", below.get_name()), directory, count)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_with_its_examples() {
        let directory = tempfile::tempdir().unwrap();
        man(&Man { out: Some(directory.path().to_owned()) }).unwrap();
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(read("neonctl.1").contains(".TH neonctl 1"));
        let create = read("neonctl-vm-create.1");
        assert!(create.contains("neonctl vm create pg") && create.contains("\\-\\-memory"), "{create}");
        assert!(read("neonctl-local-up.1").contains(".TH neonctl-local-up 1"));
    }
}
