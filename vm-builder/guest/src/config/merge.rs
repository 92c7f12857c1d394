//! The workload: settings of the image, overridden by those of the VM, by Kubernetes' rules.

use neonvm_types::guest::{Process, RuntimeConfig};

/// `PATH` of processes if the image sets none.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program ready to be started, but for its user, which needs the image's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Program and arguments; at least one.
    pub command: Vec<String>,
    /// `NAME=value`, each name once.
    pub environment: Vec<String>,
    /// User as the image names it; empty: root.
    pub user: String,
    /// Absolute working directory.
    pub directory: String,
    /// Signal that requests it to stop, 1–64.
    pub stop_signal: i32,
}

/// Why there is no workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    #[error("no command specified: the image has no entry point and the VM sets no command")]
    NoCommand,
    #[error("unknown stop signal {0:?}")]
    UnknownSignal(String),
}

/// `command` replaces the entry point and drops the image's `Cmd`; `args` replaces `Cmd`. Environment: later wins.
pub fn merge(image: &Process, runtime: &RuntimeConfig) -> Result<Workload, MergeError> {
    let command = match (&runtime.command, &runtime.args) {
        (Some(command), args) => joined(command, args.as_deref().unwrap_or_default()),
        (None, Some(args)) => joined(&image.entrypoint, args),
        (None, None) => joined(&image.entrypoint, &image.cmd),
    };
    if command.first().is_none_or(String::is_empty) {
        return Err(MergeError::NoCommand);
    }
    let directory = match image.working_dir.as_str() {
        "" => "/".to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        path => format!("/{path}"),
    };
    let environment = merge_environment(&[&image.env, &runtime.env]);
    let stop_signal = parse_signal(&image.stop_signal)?;
    Ok(Workload { command, environment, user: image.user.clone(), directory, stop_signal })
}

fn joined(first: &[String], second: &[String]) -> Vec<String> {
    first.iter().chain(second).cloned().collect()
}

/// One list with each name once: the position of its first mention, the value of its last. Entries without a name or
/// with a NUL are dropped; `PATH` is added when missing.
pub fn merge_environment(lists: &[&[String]]) -> Vec<String> {
    let mut merged: Vec<String> = Vec::new();
    for entry in lists.iter().copied().flatten() {
        let Some(name) = name_of(entry) else { continue };
        match merged.iter_mut().find(|have| name_of(have) == Some(name)) {
            Some(have) => have.clone_from(entry),
            None => merged.push(entry.clone()),
        }
    }
    if !merged.iter().any(|entry| name_of(entry) == Some("PATH")) {
        merged.push(format!("PATH={DEFAULT_PATH}"));
    }
    merged
}

fn name_of(entry: &str) -> Option<&str> {
    let (name, _) = entry.split_once('=')?;
    (!name.is_empty() && !entry.contains('\0')).then_some(name)
}

/// Numbers of the signals by name, the same on x86-64 and arm64.
const SIGNALS: [(&str, i32); 31] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];

/// `SIGINT`, `INT`, `2`, `SIGRTMIN+3`; empty: SIGTERM.
pub fn parse_signal(text: &str) -> Result<i32, MergeError> {
    let unknown = || MergeError::UnknownSignal(text.to_owned());
    if text.is_empty() {
        return Ok(15);
    }
    if let Ok(number) = text.parse::<i32>() {
        return crate::system::signal(number).map(|_| number).ok_or_else(unknown);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Some((_, number)) = SIGNALS.iter().find(|(known, _)| *known == name) {
        return Ok(*number);
    }
    let offset = match name.strip_prefix("RTMIN") {
        Some("") => Some(0),
        Some(rest) => rest.strip_prefix('+').and_then(|digits| digits.parse::<i32>().ok()),
        None => None,
    };
    offset.and_then(|offset| offset.checked_add(34)).filter(|n| (34..=64).contains(n)).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn command(
        entrypoint: &[&str],
        cmd: &[&str],
        over: Option<&[&str]>,
        args: Option<&[&str]>,
    ) -> Option<Vec<String>> {
        let image = Process { entrypoint: list(entrypoint), cmd: list(cmd), ..Process::default() };
        let runtime =
            RuntimeConfig { command: over.map(list), args: args.map(list), ..RuntimeConfig::default() };
        merge(&image, &runtime).ok().map(|workload| workload.command)
    }

    #[test]
    fn command_and_args_follow_kubernetes() {
        assert_eq!(command(&["e"], &["c"], None, None), Some(list(&["e", "c"])));
        assert_eq!(command(&["e"], &["c"], Some(&["k"]), None), Some(list(&["k"])));
        assert_eq!(command(&["e"], &["c"], None, Some(&["a"])), Some(list(&["e", "a"])));
        assert_eq!(command(&["e"], &["c"], Some(&["k"]), Some(&["a"])), Some(list(&["k", "a"])));
        assert_eq!(command(&[], &["c"], None, None), Some(list(&["c"])));
        assert_eq!(command(&["e"], &["c"], None, Some(&[])), Some(list(&["e"])));
        assert_eq!(command(&[], &[], None, None), None);
        assert_eq!(command(&[], &["c"], Some(&[]), None), None);
    }

    #[test]
    fn signals_have_names_and_numbers() {
        let known = [
            ("", 15),
            ("SIGINT", 2),
            ("int", 2),
            ("9", 9),
            ("SIGRTMIN", 34),
            ("RTMIN+3", 37),
            ("SIGPWR", 30),
        ];
        for (text, number) in known {
            assert_eq!(parse_signal(text), Ok(number), "{text}");
        }
        for text in ["SIGNOPE", "0", "65", "-9", "RTMIN+31", "RTMIN+99999999999"] {
            assert!(parse_signal(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_relative_directory_starts_at_the_root() {
        let image = Process { cmd: list(&["a"]), working_dir: "srv".into(), ..Process::default() };
        assert_eq!(merge(&image, &RuntimeConfig::default()).unwrap().directory, "/srv");
    }

    proptest! {
        #[test]
        fn later_values_win_and_names_are_unique(
            image in proptest::collection::vec("[AB]{1,2}=[a-c]{0,2}", 0..8),
            runtime in proptest::collection::vec("[AB]{1,2}=[a-c]{0,2}", 0..8),
        ) {
            let merged = merge_environment(&[&image, &runtime]);
            let names: std::collections::BTreeSet<_> = merged.iter().filter_map(|e| name_of(e)).collect();
            prop_assert_eq!(names.len(), merged.len());
            for entry in &merged {
                let last = image.iter().chain(&runtime).rfind(|other| name_of(other) == name_of(entry));
                prop_assert!(last.is_none_or(|last| last == entry));
            }
            prop_assert!(names.contains("PATH"));
        }
    }
}
