//! The `mounts.sh` of older runners: the few forms of line they write, understood without a shell.

use std::path::{Component, Path};

/// One thing to do before the workload starts, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    MakeDirectory(String),
    Mount(MountStep),
    /// Set permission bits of a path.
    Mode(String, u32),
    /// Turn on project quotas in the file system with this label.
    ProjectQuota(String),
    /// Make swap of this many bytes; 0: none.
    Swap(u64),
    /// Set the size of `/dev/shm`, in bytes.
    SharedMemory(u64),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountStep {
    /// Label or serial number of the device; None: the file system has no device.
    pub label: Option<String>,
    /// Absolute path.
    pub target: String,
    /// Type; None: detected from its content.
    pub kind: Option<String>,
    pub read_only: bool,
    /// Further options, joined by commas.
    pub options: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("mounts.sh line {line}: not understood and skipped: {text}")]
pub struct UnknownLine {
    /// From 1.
    pub line: usize,
    /// The line, cut to 120 characters.
    pub text: String,
}

/// Reads every line; comments, blank lines and `set` are nothing.
pub fn parse(text: &str) -> impl Iterator<Item = Result<Step, UnknownLine>> + '_ {
    text.lines().enumerate().filter_map(|(index, line)| {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') || trimmed.starts_with("set ") {
            return None;
        }
        let unknown =
            || UnknownLine { line: index.saturating_add(1), text: trimmed.chars().take(120).collect() };
        let words = words(trimmed)?;
        parse_line(&words).ok_or_else(unknown).transpose()
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Plain(String),
    /// `$(blkid -L label)`.
    Label(String),
}

/// The words of a line, with each command substitution as one; None never: unreadable quotes are one odd word.
fn words(line: &str) -> Option<Vec<Word>> {
    let Some(split) = shlex::split(line) else { return Some(vec![Word::Plain(line.to_owned())]) };
    let mut result = Vec::new();
    let mut inner: Option<Vec<String>> = None;
    for word in split {
        match &mut inner {
            None => match word.strip_prefix("$(") {
                Some(first) => inner = Some(vec![first.to_owned()]),
                None => result.push(Word::Plain(word)),
            },
            Some(words) => words.push(word),
        }
        let closed = inner.as_mut().and_then(|words| words.last_mut()).filter(|last| last.ends_with(')'));
        if let Some(last) = closed {
            last.pop();
            result.push(substitution(&inner.take().unwrap_or_default()));
        }
    }
    // A substitution without end makes the line one that is not understood.
    if inner.is_some() {
        result.push(Word::Plain("$(".into()));
    }
    Some(result)
}

fn substitution(words: &[String]) -> Word {
    match words {
        [program, flag, label] if is_program(program, "blkid") && flag == "-L" => Word::Label(label.clone()),
        _ => Word::Plain("$(".into()),
    }
}

fn is_program(word: &str, name: &str) -> bool {
    word == name || word.strip_prefix("/neonvm/bin/") == Some(name)
}

fn parse_line(words: &[Word]) -> Option<Option<Step>> {
    let (Word::Plain(program), rest) = words.split_first()? else { return None };
    let name = program.strip_prefix("/neonvm/bin/").unwrap_or(program);
    let step = match (name, rest) {
        ("mkdir", [Word::Plain(flag), Word::Plain(path)]) if flag == "-p" => {
            Step::MakeDirectory(absolute(path)?)
        }
        ("chmod", [Word::Plain(mode), Word::Plain(path)]) => {
            Step::Mode(absolute(path)?, u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777)?)
        }
        ("sh", [Word::Plain(script), Word::Plain(size)]) if script.ends_with("/resize-swap-internal.sh") => {
            Step::Swap(size.parse().ok()?)
        }
        ("tune2fs", [Word::Plain(flag), Word::Plain(value), Word::Label(label)]) => {
            match (flag.as_str(), value.as_str()) {
                ("-Q", "prjquota") => Step::ProjectQuota(label.clone()),
                // The mount option is given at each mount; the file system need not remember it.
                ("-E", "mount_opts=prjquota") => return Some(None),
                _ => return None,
            }
        }
        ("mount", rest) => parse_mount(rest)?,
        _ => return None,
    };
    Some(Some(step))
}

fn parse_mount(words: &[Word]) -> Option<Step> {
    let mut step = MountStep::default();
    let mut options: Vec<String> = Vec::new();
    let mut places = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word {
            Word::Plain(flag) if flag == "-t" => step.kind = Some(plain(words.next()?)?),
            Word::Plain(flag) if flag == "-o" => {
                options.extend(plain(words.next()?)?.split(',').map(str::to_owned));
            }
            Word::Plain(flag) if flag.starts_with('-') => return None,
            word => places.push(word),
        }
    }
    if options.iter().any(|option| option == "remount") {
        let size = options.iter().find_map(|option| option.strip_prefix("size="))?.parse().ok()?;
        let [Word::Plain(target)] = places.as_slice() else { return None };
        return (target == "/dev/shm").then_some(Step::SharedMemory(size));
    }
    let [source, Word::Plain(target)] = places.as_slice() else { return None };
    step.target = absolute(target)?;
    match source {
        Word::Label(label) => step.label = Some(label.clone()),
        // The source of a file system without device is only a name.
        Word::Plain(_) if step.kind.as_deref() == Some("tmpfs") => {}
        Word::Plain(_) => return None,
    }
    step.read_only = options.iter().any(|option| option == "ro");
    options.retain(|option| option != "ro" && option != "rw");
    step.options = options.join(",");
    Some(Step::Mount(step))
}

fn plain(word: &Word) -> Option<String> {
    match word {
        Word::Plain(text) => Some(text.clone()),
        Word::Label(_) => None,
    }
}

/// An absolute path that does not climb.
fn absolute(path: &str) -> Option<String> {
    let climbs = Path::new(path).components().any(|part| part == Component::ParentDir);
    (path.starts_with('/') && !climbs && !path.contains('\0')).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(line: &str) -> Option<Step> {
        parse(line).next().and_then(Result::ok)
    }

    fn mount(label: Option<&str>, target: &str, kind: Option<&str>, read_only: bool, options: &str) -> Step {
        Step::Mount(MountStep {
            label: label.map(Into::into),
            target: target.into(),
            kind: kind.map(Into::into),
            read_only,
            options: options.into(),
        })
    }

    #[test]
    fn every_form_of_the_runner_is_understood() {
        let table = [
            ("/neonvm/bin/mkdir -p /mnt/ssh", Step::MakeDirectory("/mnt/ssh".into())),
            (
                "/neonvm/bin/mount  -t iso9660 -o ro,mode=0644 $(/neonvm/bin/blkid -L ssh-authorized-keys) /mnt/ssh",
                mount(Some("ssh-authorized-keys"), "/mnt/ssh", Some("iso9660"), true, "mode=0644"),
            ),
            ("/neonvm/bin/sh /neonvm/runtime/resize-swap-internal.sh 1073741824", Step::Swap(1 << 30)),
            ("tune2fs -Q prjquota $(/neonvm/bin/blkid -L data)", Step::ProjectQuota("data".into())),
            (
                "/neonvm/bin/mount -o discard $(/neonvm/bin/blkid -L data) /var/db",
                mount(Some("data"), "/var/db", None, false, "discard"),
            ),
            (
                "/neonvm/bin/mount  $(/neonvm/bin/blkid -L data) /var/db",
                mount(Some("data"), "/var/db", None, false, ""),
            ),
            ("/neonvm/bin/chmod 0777 /var/db", Step::Mode("/var/db".into(), 0o777)),
            (
                "/neonvm/bin/mount -t tmpfs -o size=4096 tmp /cache",
                mount(None, "/cache", Some("tmpfs"), false, "size=4096"),
            ),
            ("/neonvm/bin/mount -o remount,size=65536 /dev/shm", Step::SharedMemory(65536)),
        ];
        for (line, step) in table {
            assert_eq!(one(line), Some(step), "{line}");
        }
        let nothing =
            "set -euo pipefail\n\n# x\ntune2fs -E mount_opts=prjquota $(/neonvm/bin/blkid -L data)\n";
        assert_eq!(parse(nothing).count(), 0);
    }

    #[test]
    fn an_unknown_line_is_named_and_the_next_one_counts() {
        let text = "set -e\nrm -rf /\n/neonvm/bin/mkdir -p /a\nmkdir -p ../b\nmount $(reboot) /a\nmount $(x\necho 'a";
        let lines: Vec<_> = parse(text).collect();
        assert_eq!(lines[0], Err(UnknownLine { line: 2, text: "rm -rf /".into() }));
        assert_eq!(lines[1], Ok(Step::MakeDirectory("/a".into())));
        assert_eq!(lines.iter().filter(|line| line.is_err()).count(), 5);
    }

    proptest! {
        #[test]
        fn no_path_climbs(path in "[a-z./]{1,20}") {
            if let Some(Step::MakeDirectory(path)) = one(&format!("mkdir -p {path}")) {
                prop_assert!(path.starts_with('/') && !path.split('/').any(|part| part == ".."));
            }
        }
    }
}
