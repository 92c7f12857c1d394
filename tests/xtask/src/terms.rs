//! Words that the project's language does not use, each with the terms that replace it. They are found in text and within
//! identifiers: `tell_monitor` and `TellMonitor` hold the word "tell".

use std::path::{Path, PathBuf};

use crate::lines;

/// The forms of a word, and what is written instead.
struct Banned {
    forms: &'static [&'static str],
    instead: &'static str,
}

const BANNED: &[Banned] = &[
    Banned { forms: &["say", "says", "said", "saying"], instead: "report, state, print or return" },
    Banned { forms: &["tell", "tells", "told", "telling"], instead: "report, notify or require" },
    Banned { forms: &["hear", "hears", "heard", "hearing"], instead: "receive" },
    Banned { forms: &["wish", "wishes", "wished"], instead: "request, or the desired state" },
    Banned {
        forms: &["somebody", "someone", "anybody", "everybody", "nobody", "whoever", "whom"],
        instead: "the name of the component or person",
    },
    Banned { forms: &["seldom"], instead: "rarely" },
    Banned { forms: &["anew"], instead: "again" },
    Banned { forms: &["fate", "fates"], instead: "verdict, or fault" },
    Banned { forms: &["storm", "storms", "strike", "strikes"], instead: "fault injection, or inject" },
    Banned { forms: &["picture", "pictures", "sight"], instead: "cache, view or diagram" },
    Banned { forms: &["books"], instead: "model or account" },
    Banned { forms: &["stray", "strays"], instead: "orphan" },
    Banned { forms: &["promise", "promises", "promised"], instead: "permit, guarantee or objective" },
    Banned { forms: &["chore", "chores"], instead: "background task" },
    Banned { forms: &["played", "plays"], instead: "fake or simulated" },
];

/// Files with other people's words: texts that imitate Kubernetes, settings of a kernel, and this list.
const EXEMPT: &[&str] = &[
    "controllers/local/apiserver/conformance/scenarios/",
    "kernel/config/",
    "LICENSE",
    "Cargo.lock",
    "tests/xtask/src/terms.rs",
];

/// Names of wire formats, of other projects, of a user and of a lane, which stay. They are taken out of a line before its words
/// are looked at.
const NAMES: &[&str] = &[
    "StormService",
    "storm-service",
    "STORM_SERVICE",
    "storm-prefill",
    "storm-decode",
    "\"storms\"",
    "| storms |",
    "guestWishes",
    "fastWishes",
    "TellMonitor",
    "TellScheduler",
    "\"heard\"",
    "\"said\"",
    "played-elsewhere",
    "`nobody`",
    "\"nobody",
    ":nobody",
    "nobody:",
    "user: nobody",
];

/// Every line of a tracked text file with a banned word.
pub(crate) fn faults(root: &Path, tracked: &[PathBuf]) -> Vec<String> {
    lines::faults(root, tracked, EXEMPT, |_, line| {
        banned(line).into_iter().map(|(word, instead)| format!("{word:?}: write {instead}")).collect()
    })
}

/// The banned words of a line, in lower case, with what replaces them.
fn banned(line: &str) -> Vec<(String, &'static str)> {
    let found = banned_words(line);
    // Most lines have none, whatever names they hold.
    if found.is_empty() {
        return found;
    }
    banned_words(&NAMES.iter().fold(line.to_owned(), |line, name| line.replace(name, " ")))
}

fn banned_words(line: &str) -> Vec<(String, &'static str)> {
    let known = |word: &str| {
        let is_it = |form: &&str| form.eq_ignore_ascii_case(word);
        let found = BANNED.iter().find(|banned| banned.forms.iter().any(is_it))?;
        Some((word.to_ascii_lowercase(), found.instead))
    };
    words(line).filter_map(known).collect()
}

/// The words of a line: runs of letters, divided where a capital follows a small letter.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphabetic()).flat_map(|mut rest| {
        std::iter::from_fn(move || {
            let last = rest.as_bytes().windows(2).position(|two| matches!(two, [b'a'..=b'z', b'A'..=b'Z']));
            let (word, later) = rest.split_at(last.map_or(rest.len(), |at| at + 1));
            rest = later;
            (!word.is_empty()).then_some(word)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<String> {
        banned(line).into_iter().map(|(word, _)| word).collect()
    }

    #[test]
    fn banned_words_are_found_in_text_and_within_identifiers() {
        assert_eq!(found("// The agent Tells the monitor."), ["tells"]);
        assert_eq!(found("self.tell_monitor(Wish::None)"), ["tell", "wish"]);
        assert_eq!(found("enum TellRunner"), ["tell"]);
        assert_eq!(found("kind: StormService"), Vec::<String>::new());
        assert_eq!(found("satellite, essay, HTTPStrike, restrike"), Vec::<String>::new());
    }

    #[test]
    fn a_fault_names_the_file_the_line_and_the_replacement() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a.md"), "fine\nNobody knows.\n").unwrap();
        let faults = faults(directory.path(), &[PathBuf::from("a.md")]);
        assert_eq!(faults, ["a.md:2: \"nobody\": write the name of the component or person"]);
    }
}
