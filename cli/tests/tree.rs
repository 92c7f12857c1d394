//! Rules that the whole command tree keeps.

use std::collections::BTreeMap;

use clap::{Command, CommandFactory as _};
use neonvm_cli::args::Args;

fn walk(command: &Command, path: &str, visit: &mut impl FnMut(&str, &Command)) {
    let path = format!("{path} {}", command.get_name());
    visit(path.trim(), command);
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        walk(below, &path, visit);
    }
}

fn each(mut visit: impl FnMut(&str, &Command)) {
    let mut root = Args::command();
    root.build();
    walk(&root, "", &mut visit);
}

#[test]
fn names_are_kebab_case_and_everything_has_help() {
    let kebab = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    each(|path, command| {
        assert!(kebab(command.get_name()), "{path}");
        assert!(command.get_about().is_some(), "{path} has no help");
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            assert!(argument.get_long().is_none_or(kebab), "{path} --{id}");
            assert!(argument.get_help().is_some(), "{path} {id} has no help");
        }
    });
}

#[test]
fn each_leaf_has_an_example() {
    each(|path, command| {
        if command.get_subcommands().next().is_none() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Example") && help.contains("neonctl"), "{path} has no example");
        }
    });
}

#[test]
fn a_flag_means_the_same_everywhere() {
    let mut shorts: BTreeMap<char, String> = BTreeMap::new();
    each(|path, command| {
        for argument in command.get_arguments() {
            let Some(short) = argument.get_short() else { continue };
            let id = argument.get_id().as_str().to_owned();
            // As with kubectl: a file where something is made, to follow where something is read.
            // -l chooses by label as with kubectl, and a user as with ssh. -i is a key as with ssh, and standard input as with
            // container engines.
            if matches!((short, id.as_str()), ('f', "file") | ('l', "login") | ('i', "interactive")) {
                continue;
            }
            let known = shorts.entry(short).or_insert_with(|| id.clone());
            assert_eq!(*known, id, "-{short} in {path}");
        }
    });
}

/// The words that a person types for help, and a flag of the cluster before the command.
#[test]
fn help_is_found_where_people_look_for_it() {
    let kind = |line: &str| Args::command().try_get_matches_from(line.split(' ')).unwrap_err().kind();
    for line in [
        "neonctl help",
        "neonctl help vm set",
        "neonctl vm help set",
        "neonctl top help",
        "neonctl -n x vm list -h",
    ] {
        assert_eq!(kind(line), clap::error::ErrorKind::DisplayHelp, "{line}");
    }
}

/// `UPDATE_GOLDEN=1` writes the page again.
#[test]
fn the_reference_has_every_command() {
    let mut text = String::from(
        "<!-- run: none -->\n# Commands\n\nGenerated from the program: `UPDATE_GOLDEN=1 cargo test -p neonvm-cli --test tree`. \
         `neonctl COMMAND --help` prints the same.\n\n## Flags of every command\n\n| Argument | Meaning |\n|---|---|\n",
    );
    let mut root = Args::command();
    root.build();
    text.extend(root.get_arguments().filter(|argument| argument.is_global_set()).map(row));
    each(|path, command| {
        if command.get_subcommands().next().is_none() && !command.is_hide_set() {
            reference(path, command, &mut text);
        }
    });
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/reference/commands.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let stored = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(stored == text, "{} is out of date; run with UPDATE_GOLDEN=1", file.display());
}

/// A text on one line of a table.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// The row of one argument.
fn row(argument: &clap::Arg) -> String {
    let short = argument.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    let value = argument.get_value_names().unwrap_or_default().iter().map(ToString::to_string);
    let value = value.collect::<Vec<_>>().join(" ");
    let takes = argument.get_action().takes_values();
    let name = match argument.get_long() {
        Some(long) if takes => format!("{short}--{long} {value}"),
        Some(long) => format!("{short}--{long}"),
        None => value,
    };
    let mut help = line(&argument.get_help().map(ToString::to_string).unwrap_or_default());
    let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
    let defaults = defaults.collect::<Vec<_>>().join(", ");
    if takes && !defaults.is_empty() {
        help.push_str(&format!(" [default: {defaults}]"));
    }
    format!("| `{}` | {help} |\n", line(&name))
}

/// The section of one command.
fn reference(path: &str, command: &Command, text: &mut String) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    text.push_str(&format!("\n## {path}\n\n{}.\n\n    {usage}\n", line(&about)));
    let own = command.get_arguments().filter(|argument| {
        argument.get_id() != "help" && !argument.is_global_set() && !argument.is_hide_set()
    });
    let rows: String = own.map(row).collect();
    if !rows.is_empty() {
        text.push_str(&format!("\n| Argument | Meaning |\n|---|---|\n{rows}"));
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let block: String =
        after.lines().map(|line| format!("    {line}").trim_end().to_owned() + "\n").collect();
    text.push_str(&format!("\n{block}"));
}

#[test]
fn exit_codes_are_the_documented_ones() {
    let numbers: Vec<u8> = neonvm_cli::Code::ALL.iter().map(|code| code.number()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 130]);
}
