//! The name under which this program was started: its own, that of a plugin of kubectl, or of what completes the plugin's arguments
//! (<https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/>). Pure.

use std::ffi::OsString;
use std::path::Path;

use clap::builder::StyledStr;
use clap::{Command, CommandFactory as _};

use crate::args::Args;
use crate::error::Error;
use crate::report::Report;

/// What people type for the plugin.
pub(crate) const PLUGIN: &str = "kubectl neonvm";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invoked {
    /// As `neonctl`, or by any other name.
    Directly,
    /// By kubectl, as `kubectl neonvm`.
    Plugin,
    Completer,
}

impl Invoked {
    pub(crate) fn of(arguments: &[OsString]) -> Self {
        let name = arguments.first().and_then(|path| Path::new(path).file_name());
        match name.and_then(|name| name.to_str()) {
            Some("kubectl-neonvm") => Self::Plugin,
            Some("kubectl_complete-neonvm") => Self::Completer,
            _ => Self::Directly,
        }
    }

    /// The command line, with the name that people type in usage, help and examples.
    pub(crate) fn command(self) -> Command {
        match self {
            Self::Directly => Args::command(),
            Self::Plugin | Self::Completer => renamed(Args::command(), &names()).bin_name(PLUGIN),
        }
    }

    pub(crate) fn error(self, mut error: Error) -> Error {
        if self != Self::Directly {
            error.hint = error.hint.map(|hint| as_plugin(&hint, &names()));
        }
        error
    }

    pub(crate) fn report(self, mut report: Report) -> Report {
        if self != Self::Directly {
            let names = names();
            report.notes.iter_mut().for_each(|note| *note = as_plugin(note, &names));
        }
        report
    }
}

fn names() -> Vec<String> {
    Args::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

/// A command and all below it, with texts that name commands as people type them.
fn renamed(mut command: Command, names: &[String]) -> Command {
    let changed = |text: Option<&StyledStr>| text.map(|text| as_plugin(&text.to_string(), names));
    if let Some(text) = changed(command.get_after_help()) {
        command = command.after_help(text);
    }
    if let Some(text) = changed(command.get_about()) {
        command = command.about(text);
    }
    let command = command.mut_args(|arg| match changed(arg.get_help()) {
        Some(text) => arg.help(text),
        None => arg,
    });
    command.mut_subcommands(|below| renamed(below, names))
}

/// Replaces the program's name where one of its commands follows; the name of the program itself and names of files stay.
fn as_plugin(text: &str, names: &[String]) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("neonctl") {
        let begins = !before.ends_with(|c: char| c.is_ascii_alphanumeric() || "-_/.".contains(c));
        let next = after.strip_prefix(' ').unwrap_or_default();
        let word = next.split(|c: char| !c.is_ascii_lowercase() && c != '-').next().unwrap_or_default();
        let follows = word.starts_with('-') || word == "help" || names.iter().any(|name| name == word);
        result.push_str(before);
        result.push_str(if begins && follows { PLUGIN } else { "neonctl" });
        rest = after;
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_that_of_the_file() {
        let of = |name: &str| Invoked::of(&[OsString::from(name)]);
        assert_eq!(of("/usr/bin/kubectl-neonvm"), Invoked::Plugin);
        assert_eq!(of("kubectl_complete-neonvm"), Invoked::Completer);
        assert_eq!(of("target/debug/neonctl"), Invoked::Directly);
        assert_eq!(Invoked::of(&[]), Invoked::Directly);
    }

    #[test]
    fn only_commands_are_renamed() {
        for (text, wanted) in [
            ("Examples:\n  neonctl vm list", "Examples:\n  kubectl neonvm vm list"),
            ("source <(neonctl completion bash)", "source <(kubectl neonvm completion bash)"),
            ("> ~/.config/neonctl/x", "> ~/.config/neonctl/x"),
            ("man neonctl-vm-create", "man neonctl-vm-create"),
            ("next to neonctl or into PATH", "next to neonctl or into PATH"),
            ("/usr/bin/neonctl vm", "/usr/bin/neonctl vm"),
        ] {
            assert_eq!(as_plugin(text, &names()), wanted);
        }
    }

    #[test]
    fn every_example_is_for_the_plugin() {
        let mut command = Invoked::Plugin.command();
        command.build();
        let mut open = vec![command];
        while let Some(command) = open.pop() {
            let usage = command.clone().render_usage().to_string();
            assert!(usage.contains(PLUGIN), "{usage}");
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.contains("  neonctl "), "{help}");
            open.extend(command.get_subcommands().cloned());
        }
    }
}
