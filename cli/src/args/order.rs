//! Flags and words that people write in another order than the definitions have: as with kubectl, flags of the cluster may stand
//! before the command, and `help` may be the first word. Pure.

use std::ffi::OsString;

use clap::CommandFactory as _;

/// Flags about cluster and namespace, which most commands have; with `true`, the value is the next argument.
const BEFORE: [(&str, bool); 8] = [
    ("-n", true),
    ("--namespace", true),
    ("--context", true),
    ("--kubeconfig", true),
    ("--request-timeout", true),
    ("--as", true),
    ("--as-group", true),
    ("-A", false),
];

/// The arguments in the order of the definitions: flags of the cluster that stand before the command come right after it, in front of
/// names, because all that follows the name of a VM may be a command for its guest;
/// `help` becomes `--help`.
#[must_use]
pub fn sorted(arguments: &[OsString]) -> Vec<OsString> {
    let Some((program, rest)) = arguments.split_first() else { return Vec::new() };
    let (moved, rest) = before_command(rest);
    let rest = without_help(rest);
    let (front, back) = rest.split_at_checked(after_command(&rest)).unwrap_or((&rest, &[]));
    std::iter::once(program).chain(front).chain(&moved).chain(back).cloned().collect()
}

/// The flags of the cluster at the beginning, and the other arguments.
fn before_command(arguments: &[OsString]) -> (Vec<OsString>, Vec<OsString>) {
    let (mut moved, mut kept) = (Vec::new(), Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        let known = BEFORE.iter().find(|(flag, _)| *flag == text);
        let joined =
            text.split_once('=').is_some_and(|(flag, _)| BEFORE.iter().any(|(known, _)| *known == flag))
                || text.len() > 2 && text.starts_with("-n") && !text.starts_with("--");
        match known {
            Some((_, true)) => {
                moved.push(word.clone());
                moved.extend(words.next().cloned());
            }
            Some((_, false)) => moved.push(word.clone()),
            None if joined => moved.push(word.clone()),
            // Flags of every command may stand there already.
            None if is_of_every_command(text) => {
                kept.push(word.clone());
                if text == "--color" {
                    kept.extend(words.next().cloned());
                }
            }
            None => {
                kept.push(word.clone());
                kept.extend(words.cloned());
                break;
            }
        }
    }
    (moved, kept)
}

/// Whether `vm run` is called as container engines are for a terminal, such as `-it`.
#[must_use]
pub fn wants_terminal(arguments: &[OsString]) -> bool {
    let words: Vec<&str> =
        arguments.iter().map_while(|word| word.to_str()).take_while(|word| *word != "--").collect();
    let is_run = words.windows(2).any(|pair| matches!(pair, ["vm", "run"]));
    is_run && words.iter().any(|word| matches!(*word, "-it" | "-ti" | "--tty"))
}

/// The index after the words of the command.
fn after_command(arguments: &[OsString]) -> usize {
    let root = super::Args::command();
    let (mut command, mut after) = (&root, None);
    for (index, word) in arguments.iter().enumerate() {
        match word.to_str().and_then(|word| command.find_subcommand(word)) {
            Some(found) => (command, after) = (found, Some(index + 1)),
            None if after.is_some() => break,
            // Flags of every command, or their values.
            None => {}
        }
    }
    after.unwrap_or(arguments.len())
}

/// Whether this is a flag that every command has, or several of one letter.
fn is_of_every_command(text: &str) -> bool {
    let letters = text.strip_prefix('-').unwrap_or_default();
    let short = !letters.is_empty() && letters.chars().all(|letter| matches!(letter, 'q' | 'v'));
    short || matches!(text, "--quiet" | "--verbose") || text.starts_with("--color")
}

/// `help COMMAND…` and `GROUP help COMMAND…` as `COMMAND… --help`.
fn without_help(arguments: Vec<OsString>) -> Vec<OsString> {
    let Some(at) = help_at(&arguments) else { return arguments };
    let words = arguments.into_iter().enumerate().filter(|(index, word)| *index != at && word != "--help");
    words.map(|(_, word)| word).chain(std::iter::once("--help".into())).collect()
}

/// Where the word `help` asks for help: first, after a noun, or after a group of commands. Elsewhere it may be a name.
fn help_at(arguments: &[OsString]) -> Option<usize> {
    let root = super::Args::command();
    let mut command = &root;
    for (index, word) in arguments.iter().enumerate() {
        let word = word.to_str()?;
        if word == "help" {
            return (index <= 1 || command.has_subcommands()).then_some(index);
        }
        command = command.find_subcommand(word)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_before_the_command_come_after_it() {
        for (typed, meant) in [
            ("neonctl -n x vm list", "neonctl vm list -n x"),
            (
                "neonctl --context=a -q --as bob vm delete pg -y",
                "neonctl -q vm delete --context=a --as bob pg -y",
            ),
            ("neonctl -v -n x -qvv --verbose vm list -v", "neonctl -v -qvv --verbose vm list -n x -v"),
            ("neonctl -nx vm create a -- sh -n y", "neonctl vm create -nx a -- sh -n y"),
            ("neonctl vm list -n x", "neonctl vm list -n x"),
            ("neonctl -n x vm ssh pg ls -n", "neonctl vm ssh -n x pg ls -n"),
            ("neonctl --color never -A top vms", "neonctl --color never top vms -A"),
            ("neonctl -n", "neonctl -n"),
            ("neonctl help", "neonctl --help"),
            ("neonctl help vm set", "neonctl vm set --help"),
            ("neonctl vm help set", "neonctl vm set --help"),
            ("neonctl vm delete help", "neonctl vm delete help"),
            ("neonctl --bogus vm", "neonctl --bogus vm"),
        ] {
            let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
            assert_eq!(sorted(&words(typed)), words(meant), "{typed}");
        }
        assert!(sorted(&[]).is_empty());
    }

    #[test]
    fn help_of_every_noun_is_clap_s_own() {
        let root = super::super::Args::command();
        for noun in root.get_subcommands() {
            let names = std::iter::once(noun.get_name()).chain(noun.get_all_aliases());
            for name in names {
                let words = |text: &[&str]| text.iter().map(OsString::from).collect::<Vec<_>>();
                assert_eq!(sorted(&words(&["neonctl", name, "help"])), words(&["neonctl", name, "--help"]));
                for verb in noun.get_subcommands() {
                    let verb = verb.get_name();
                    let typed = sorted(&words(&["neonctl", name, "help", verb]));
                    assert_eq!(typed, words(&["neonctl", name, verb, "--help"]));
                }
            }
        }
    }
}
