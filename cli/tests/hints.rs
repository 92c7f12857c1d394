//! Every flag and command in a sentence of the program exists: in hints, errors, help and notes of the command line, the builder, and the
//! kubelet's images.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};
use neonvm_cli::args::Args;

/// Flags of other programs that sentences name, each with a word of the sentence that names the program.
const OTHERS: [(&str, &str); 10] = [
    ("--acls", "tar"),
    ("--chmod", ""),
    ("--chown", ""),
    ("--clean-up", "neond local"),
    ("--device", "container"),
    ("--extract", "fsck.erofs"),
    ("--forget", "neond local"),
    ("--history-dir", "the agent"),
    ("--overwrite", "kubectl label"),
    ("--server-side", "kubectl apply"),
];

fn sources(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "tests" {
                sources(&path, into);
            }
        } else if name.ends_with(".rs") && name != "tests.rs" && name != "flags.rs" {
            into.push(path);
        }
    }
}

/// The texts in quotes of a source file, without its tests and comments.
fn literals(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod").next().unwrap_or_default();
    let mut found = Vec::new();
    for line in source.replace("\\\n", "\u{1}").lines() {
        let line = line.trim_start();
        if line.starts_with("//") && !line.starts_with("///") {
            continue;
        }
        // Comments of documentation of arguments are their help.
        if let Some(help) = line.strip_prefix("///") {
            found.push(help.to_owned());
            continue;
        }
        let (mut text, mut is_inside, mut characters) = (String::new(), false, line.chars().peekable());
        while let Some(character) = characters.next() {
            match (is_inside, character) {
                (true, '\\') => {
                    text.push(match characters.next() {
                        Some('n') => '\n',
                        Some(other) => other,
                        None => break,
                    });
                }
                // A line that goes on.
                (true, '\u{1}') => while characters.next_if(|next| next.is_whitespace()).is_some() {},
                (true, '"') => found.push(std::mem::take(&mut text)),
                (true, other) => text.push(other),
                (false, '\'') if characters.peek() == Some(&'"') => {
                    characters.next();
                }
                (false, _) => {}
            }
            if character == '"' {
                is_inside = !is_inside;
            }
        }
    }
    found
}

fn find<'a>(
    command: &'a Command,
    words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
) -> &'a Command {
    let mut here = command;
    while let Some(below) = words.peek().and_then(|word| here.find_subcommand(word)) {
        here = below;
        words.next();
    }
    here
}

fn has(command: &Command, flag: &str) -> bool {
    let name = flag.trim_start_matches('-');
    command.get_arguments().any(|argument| {
        argument.get_long() == Some(name)
            || argument.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
    })
}

fn all_flags(command: &Command, into: &mut BTreeSet<String>) {
    for argument in command.get_arguments() {
        into.extend(argument.get_long().map(str::to_owned));
        into.extend(argument.get_all_aliases().unwrap_or_default().into_iter().map(str::to_owned));
    }
    command.get_subcommands().for_each(|below| all_flags(below, into));
}

/// The flags in a text: `--name`, with nothing of a name before.
fn flags(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("--") {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|before| before.is_alphanumeric() || "-{/".contains(before)) {
            continue;
        }
        let name: String = text[at + 2..]
            .chars()
            .take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-')
            .collect();
        let name = name.trim_end_matches('-');
        if name.starts_with(|first: char| first.is_ascii_lowercase()) {
            found.push(format!("--{name}"));
        }
    }
    found
}

#[test]
fn every_flag_and_command_in_a_sentence_exists() {
    let mut root = Args::command();
    root.build();
    let mut known = BTreeSet::new();
    all_flags(&root, &mut known);
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for directory in ["cli/src", "vm-builder/src", "controllers/local/kubelet/src/images"] {
        sources(&base.join(directory), &mut files);
    }
    let (mut wrong, mut sentences) = (Vec::new(), 0);
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        for literal in literals(&text) {
            // Words by themselves are arguments of programs.
            if !literal.trim().contains(' ') {
                continue;
            }
            let place = path.strip_prefix(base).unwrap().display().to_string();
            for flag in flags(&literal) {
                sentences += 1;
                let is_other = OTHERS.iter().any(|(other, word)| *other == flag && literal.contains(word));
                if !known.contains(&flag[2..]) && !is_other {
                    wrong.push(format!("{place}: {flag} in {literal:?}"));
                }
            }
            for call in literal.split("neonctl ").skip(1) {
                let end = call.find(['\n', ',', ';', ')', '(', '`', '"', '|', ':']).unwrap_or(call.len());
                let mut words = call[..end].split_whitespace().peekable();
                let command = find(&root, &mut words);
                for flag in words.take_while(|word| *word != "--" && *word != "#").flat_map(flags) {
                    if command.get_subcommands().next().is_none() && !has(command, &flag) {
                        wrong.push(format!("{place}: {} has no {flag}: {literal:?}", command.get_name()));
                    }
                }
            }
        }
    }
    assert!(sentences > 200, "only {sentences} were read");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
