//! Rules that the whole command tree keeps.

use std::collections::BTreeMap;

use clap::{Command, CommandFactory as _};
use neonvm_cli::args::Args;

fn walk(command: &Command, path: &str, visit: &mut impl FnMut(&str, &Command)) {
    let path = format!("{path} {}", command.get_name());
    visit(path.trim(), command);
    for below in command.get_subcommands() {
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
            // -l chooses by label as with kubectl, and a user as with ssh.
            if matches!((short, id.as_str()), ('f', "file") | ('l', "login")) {
                continue;
            }
            let known = shorts.entry(short).or_insert_with(|| id.clone());
            assert_eq!(*known, id, "-{short} in {path}");
        }
    });
}

#[test]
fn every_reading_command_has_forms() {
    // These write a script, a stream or a setting.
    let without = [
        "neonctl completion",
        "neonctl local logs",
        "neonctl config set",
        "neonctl vm console",
        "neonctl vm ssh",
        "neonctl vm connect",
        "neonctl vm logs",
    ];
    each(|path, command| {
        let leaf = command.get_subcommands().next().is_none();
        let has = command.get_arguments().any(|argument| argument.get_id() == "output");
        assert!(!leaf || has != without.contains(&path), "{path}");
    });
}

#[test]
fn exit_codes_are_the_documented_ones() {
    let numbers: Vec<u8> = neonvm_cli::Code::ALL.iter().map(|code| code.number()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 130]);
}
