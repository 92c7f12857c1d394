//! Completion of the plugin's arguments for kubectl, which calls `kubectl_complete-neonvm` with the words that follow `kubectl neonvm`;
//! the last one is to be completed. The answer has a line for each candidate, with its description after a tab, and a last
//! line with a number for the shell, as programs made with cobra print it.

use std::ffi::OsString;
use std::path::Path;

use clap_complete::engine::{CompletionCandidate, complete};

use crate::invoked::{Invoked, PLUGIN};

/// The shell adds no space behind the candidate.
const NO_SPACE: u8 = 2;
/// The shell does not add names of files.
const NO_FILES: u8 = 4;

/// The answer to the words behind the program's name.
pub(crate) fn answer(words: &[OsString], directory: Option<&Path>) -> String {
    let mut line = vec![OsString::from(PLUGIN)];
    line.extend_from_slice(words);
    if words.is_empty() {
        line.push(OsString::new());
    }
    let index = line.len().saturating_sub(1);
    let wants_flags = line.last().is_some_and(|word| word.to_string_lossy().starts_with('-'));
    let mut command = super::completed(Invoked::Completer.command());
    let found = complete(&mut command, line, index, directory).unwrap_or_default();
    let mut shown: Vec<&CompletionCandidate> =
        found.iter().filter(|candidate| wants_flags || !is_flag(candidate)).collect();
    if shown.is_empty() {
        shown = found.iter().collect();
    }
    text(&shown)
}

fn is_flag(candidate: &CompletionCandidate) -> bool {
    candidate.get_value().to_string_lossy().starts_with('-')
}

/// A candidate that does not fit on a line is left out.
fn text(candidates: &[&CompletionCandidate]) -> String {
    let mut text = String::new();
    let mut directive = NO_FILES;
    for candidate in candidates {
        let value = candidate.get_value().to_string_lossy();
        if value.contains(char::is_control) {
            continue;
        }
        if value.ends_with(['/', '=']) {
            directive = NO_FILES | NO_SPACE;
        }
        text.push_str(&value);
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        if let Some(help) = help.lines().next().filter(|help| !help.is_empty()) {
            text.push_str(&format!("\t{}", help.replace('\t', " ")));
        }
        text.push('\n');
    }
    text + &format!(":{directive}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str]) -> String {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        answer(&words, None)
    }

    #[test]
    fn commands_come_with_their_description_and_without_flags() {
        let answer = asked(&["completion", ""]);
        assert!(answer.starts_with("bash\tGNU Bash\n"), "{answer}");
        assert!(answer.ends_with("\n:4\n") && !answer.contains("\n-"), "{answer}");
        assert!(asked(&[]).contains("vm\t"));
    }

    #[test]
    fn flags_come_when_they_are_asked_for() {
        assert!(asked(&["vm", "list", "--out"]).starts_with("--output\t"));
        assert!(asked(&["config", "set", ""]).lines().count() > 3);
    }

    #[test]
    fn flags_of_the_cluster_may_stand_first() {
        let answer = asked(&["-n", "x", "--context=y", "-q", "vm", "ssh-c"]);
        assert!(answer.starts_with("ssh-config\t"), "{answer}");
        assert!(asked(&["help", "vm", "ssh-c"]).starts_with("ssh-config\t"));
    }

    #[test]
    fn a_directory_gets_no_space() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("values")).unwrap();
        let answer = answer(&["vm", "create", "-f", ""].map(OsString::from), Some(directory.path()));
        assert_eq!(answer, "values/\n:6\n");
    }

    #[test]
    fn nothing_to_complete_is_an_answer_too() {
        assert_eq!(asked(&["no", "such", "--thing="]), ":4\n");
    }
}
