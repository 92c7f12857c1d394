//! What is done, in which order, to change the files of a directory without a moment in which they are neither the
//! old nor the new ones.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The link to the directory with the files.
pub const DATA: &str = "..data";
/// The name under which links are made before they are renamed into place.
pub const TEMPORARY: &str = "..data_tmp";

/// What is in the directory before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: OsString,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Link(OsString),
    Directory,
    Other,
}

/// One step; each is done or not done when the VM stops, never half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make a directory, whose parent exists.
    MakeDirectory(OsString),
    /// Write a file of the payload into a directory, at its path there, and wait until it is on the disk.
    WriteFile { directory: OsString, name: OsString },
    /// Wait until this directory, or the directory itself, is on the disk.
    Sync(Option<OsString>),
    /// Make a link, or point it elsewhere, in one step.
    Link { name: OsString, target: OsString },
    /// Remove a link.
    Unlink(OsString),
    /// Remove a directory with its files.
    RemoveDirectory(OsString),
}

/// The steps that make the files those with these paths, in a new directory `fresh`; without one the files stay as they are and
/// only what an interrupted change left is put right.
pub fn plan<'a>(
    entries: &[Entry],
    names: impl Iterator<Item = &'a OsStr>,
    fresh: Option<&OsStr>,
) -> Vec<Step> {
    let names: BTreeSet<&OsStr> = names.collect();
    let link_of = |name: &OsStr| {
        entries.iter().find_map(|entry| match &entry.kind {
            Kind::Link(target) if entry.name == name => Some(target.as_os_str()),
            _ => None,
        })
    };
    let mut steps = Vec::new();
    if let Some(fresh) = fresh {
        steps.push(Step::MakeDirectory(fresh.into()));
        let directories: BTreeSet<PathBuf> = names.iter().flat_map(|name| parents(name)).collect();
        let below = |path: &PathBuf| Path::new(fresh).join(path).into_os_string();
        steps.extend(directories.iter().map(|path| Step::MakeDirectory(below(path))));
        let write = |name: &&OsStr| Step::WriteFile { directory: fresh.into(), name: name.into() };
        steps.extend(names.iter().map(write));
        steps.extend(directories.iter().rev().map(|path| Step::Sync(Some(below(path)))));
        steps.push(Step::Sync(Some(fresh.into())));
    }
    // What is at the top has a link: files, and directories as a whole.
    let names: BTreeSet<&OsStr> =
        names.into_iter().filter_map(|name| Path::new(name).iter().next()).collect();
    let links = names.iter().filter_map(|name| {
        let target = through_data(name);
        (link_of(name) != Some(target.as_os_str())).then(|| Step::Link { name: (*name).into(), target })
    });
    push_synced(&mut steps, links.collect());
    // After the other links: once this one exists, the files can be read, and process 1 starts the workload.
    let data = fresh.map(|fresh| Step::Link { name: DATA.into(), target: fresh.into() });
    push_synced(&mut steps, data.into_iter().collect());
    let current = fresh.or_else(|| link_of(OsStr::new(DATA)));
    let (mut removals, mut leftover) = (Vec::new(), None);
    for entry in entries {
        let name = entry.name.as_os_str();
        match &entry.kind {
            // Making any link replaces and renames this one.
            Kind::Link(_) if name == TEMPORARY => leftover = Some(name),
            Kind::Link(target) if *target == through_data(name) && !names.contains(name) => {
                removals.push(Step::Unlink(name.into()));
            }
            Kind::Directory if is_ours(name) && Some(name) != current => {
                removals.push(Step::RemoveDirectory(name.into()));
            }
            _ => {}
        }
    }
    if let Some(name) = leftover
        && !steps.iter().any(|step| matches!(step, Step::Link { .. }))
    {
        removals.push(Step::Unlink(name.into()));
    }
    push_synced(&mut steps, removals);
    steps
}

/// Directories of a path, without the first, which is that of all.
fn parents(path: &OsStr) -> impl Iterator<Item = PathBuf> {
    let all = Path::new(path).ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
    all.map(Path::to_path_buf)
}

/// Adds steps in the directory itself, and the wait until they are on the disk, if there are any.
fn push_synced(steps: &mut Vec<Step>, more: Vec<Step>) {
    if !more.is_empty() {
        steps.extend(more);
        steps.push(Step::Sync(None));
    }
}

fn through_data(name: &OsStr) -> OsString {
    let mut target = OsString::from(DATA);
    target.push("/");
    target.push(name);
    target
}

/// Name of the directory of a change made now: the time in UTC, as the kubelet writes it, and nanoseconds.
pub fn directory_name(now: SystemTime) -> OsString {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let nanoseconds = since.subsec_nanos();
    format!("..{year:04}_{month:02}_{day:02}_{hour:02}_{minute:02}_{second:02}.{nanoseconds:09}").into()
}

/// Whether the name is one a writer of this layout gives to a directory.
fn is_ours(name: &OsStr) -> bool {
    let Some(name) = name.to_str().and_then(|name| name.strip_prefix("..")) else { return false };
    let Some((time, unique)) = name.split_once('.') else { return false };
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let lengths = time.split('_').map(str::len).eq([4, 2, 2, 2, 2, 2]);
    lengths && time.split('_').all(digits) && !unique.is_empty() && digits(unique)
}

/// The proleptic Gregorian date – year, month, day – of a day counted from 1970-01-01. Counting years from March puts the leap day last.
pub(crate) fn date(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    let shifted = days.saturating_add(719_468);
    let (era, day) = (shifted / ERA, shifted % ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / (ERA - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, date)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn directories_are_named_after_the_time() {
        let at = |seconds| directory_name(UNIX_EPOCH + Duration::new(seconds, 5));
        assert_eq!(at(0), "..1970_01_01_00_00_00.000000005");
        assert_eq!(at(951_827_696), "..2000_02_29_12_34_56.000000005");
        assert_eq!(at(4_107_542_400), "..2100_03_01_00_00_00.000000005");
        assert!(is_ours(&at(1)));
        for name in ["..data", "..2000_02_29_12_34_56", "2000_02_29_12_34_56.1", "..2000_02_29_12_34_56.x"] {
            assert!(!is_ours(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn a_first_change_writes_then_links_and_shows_all_at_once() {
        let steps = plan(&[], [OsStr::new("a")].into_iter(), Some(OsStr::new("..d")));
        assert_eq!(
            steps,
            [
                Step::MakeDirectory("..d".into()),
                Step::WriteFile { directory: "..d".into(), name: "a".into() },
                Step::Sync(Some("..d".into())),
                Step::Link { name: "a".into(), target: "..data/a".into() },
                Step::Sync(None),
                Step::Link { name: "..data".into(), target: "..d".into() },
                Step::Sync(None),
            ]
        );
    }

    #[test]
    fn foreign_entries_stay() {
        let entry = |name: &str, kind| Entry { name: name.into(), kind };
        let entries = [
            entry("mine", Kind::Other),
            entry("sub", Kind::Directory),
            entry("link", Kind::Link("elsewhere".into())),
            entry("..data", Kind::Link("..2000_01_01_00_00_00.1".into())),
            entry("..2000_01_01_00_00_00.1", Kind::Directory),
        ];
        assert_eq!(plan(&entries, [].into_iter(), None), []);
    }
}
