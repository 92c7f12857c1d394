//! What clusters that are gone have left on this machine: network namespaces named after them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sha2::Digest as _;

use crate::commands::checks::finding::{Finding, ok, warn};
use crate::instance;

/// Where `ip netns` keeps namespaces.
const NAMESPACES: &str = "/run/netns";

/// What the names of everything of a cluster contain: six digits of the SHA-256 of its directory, as `neond` makes them.
fn mark(directory: &Path) -> String {
    let path = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let digest = sha2::Sha256::digest(path.display().to_string().as_bytes());
    digest.iter().take(3).map(|byte| format!("{byte:02x}")).collect()
}

/// The mark in the name of a namespace, `nv-MARK-…`.
fn mark_of(name: &str) -> Option<&str> {
    let (mark, _) = name.strip_prefix("nv-")?.split_once('-')?;
    (mark.len() == 6 && mark.chars().all(|c| c.is_ascii_hexdigit())).then_some(mark)
}

/// Directories of clusters that run on this machine, wherever they are, by the arguments of their processes.
fn running() -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.flat_map(|line| directories(&line)).collect()
}

/// Directories in a command line as `/proc` has it.
fn directories(line: &[u8]) -> Vec<PathBuf> {
    let words: Vec<String> =
        line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    if !words
        .first()
        .is_some_and(|program| program.rsplit('/').next().is_some_and(|name| name.starts_with("neond")))
    {
        return Vec::new();
    }
    let pairs = words.iter().zip(words.iter().skip(1));
    pairs
        .filter(|(flag, _)| matches!(flag.as_str(), "--data-dir" | "--cluster-dir"))
        .map(|(_, directory)| PathBuf::from(directory))
        .collect()
}

/// Namespaces by mark, of marks without a live owner.
fn orphans(names: impl Iterator<Item = String>, known: &BTreeSet<String>) -> BTreeMap<String, usize> {
    let mut orphans = BTreeMap::new();
    for name in names {
        if let Some(mark) = mark_of(&name).filter(|mark| !known.contains(*mark)) {
            *orphans.entry(mark.to_owned()).or_insert(0) += 1;
        }
    }
    orphans
}

/// Leftovers of clusters that are neither below `root` nor running.
pub(super) fn leftovers(root: &Path) -> Finding {
    let kept = instance::all(root).into_iter().map(|instance| instance.directory);
    let known: BTreeSet<String> = kept.chain(running()).map(|directory| mark(&directory)).collect();
    let entries = std::fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    let orphans = orphans(entries.filter_map(|entry| entry.file_name().into_string().ok()), &known);
    if orphans.is_empty() {
        return ok("leftovers", "no remains of other clusters");
    }
    let shown: Vec<String> = orphans.iter().map(|(mark, count)| format!("nv-{mark}-* ({count})")).collect();
    warn(
        "leftovers",
        format!("network namespaces of clusters that no longer exist: {}", shown.join(", ")),
        "neonctl local down --name X --delete removes a cluster completely; if its directory DIR does not exist: \
         neond local --clean-up --forget --data-dir DIR",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_those_of_the_node() {
        // sha256("/no/such/dir") begins with these; the node's crate derives names from the same digest.
        let mark = mark(Path::new("/no/such/dir"));
        assert_eq!(mark.len(), 6);
        assert_eq!(mark_of(&format!("nv-{mark}-n-n1")), Some(mark.as_str()));
        for name in ["nv-abc-n", "nv-xyzxyz-n", "nvabcdef-n", "nv-abcdef", "other"] {
            assert_eq!(mark_of(name), None, "{name}");
        }
    }

    #[test]
    fn namespaces_of_known_clusters_are_no_leftovers() {
        let names = ["nv-aaaaaa-n-n1", "nv-bbbbbb-n-n1", "nv-bbbbbb-p-0001-x", "cni-1"].map(str::to_owned);
        let known = BTreeSet::from(["aaaaaa".to_owned()]);
        assert_eq!(orphans(names.into_iter(), &known), BTreeMap::from([("bbbbbb".to_owned(), 2)]));
    }

    #[test]
    fn directories_of_running_clusters() {
        let line = b"/opt/neond\0kubelet\0--name\0n1\0--cluster-dir\0/var/c\0";
        assert_eq!(directories(line), [PathBuf::from("/var/c")]);
        assert!(directories(b"/bin/other\0--data-dir\0/var/c\0").is_empty());
        assert!(directories(b"").is_empty() && directories(b"neond\0--data-dir").is_empty());
    }
}
