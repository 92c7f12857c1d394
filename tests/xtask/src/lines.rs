//! Checks of each line of the tracked text files.

use std::path::{Path, PathBuf};

/// What `check` finds in the lines of the tracked text files, each with its file and line. `exempt`: files and directories that
/// are left out.
pub(crate) fn faults(
    root: &Path,
    tracked: &[PathBuf],
    exempt: &[&str],
    check: impl Fn(&Path, &str) -> Vec<String>,
) -> Vec<String> {
    let mut faults = Vec::new();
    for file in tracked.iter().filter(|file| !exempt.iter().any(|exempt| file.starts_with(exempt))) {
        // A file that is no text has no lines.
        let Ok(text) = std::fs::read_to_string(root.join(file)) else { continue };
        for (number, line) in text.lines().enumerate() {
            let found = check(file, line).into_iter();
            faults.extend(found.map(|fault| format!("{}:{}: {fault}", file.display(), number + 1)));
        }
    }
    faults
}

/// The lines of a source file before its own tests.
pub(crate) fn before_tests(text: &str) -> usize {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().lines().count()
}

/// Whether a whole file is tests, by its path.
pub(crate) fn is_of_tests(file: &Path) -> bool {
    file.iter().any(|part| part == "tests" || part == "tests.rs")
}

/// The sources among the tracked files, with their texts.
pub(crate) fn sources<'a>(
    root: &'a Path,
    tracked: &'a [PathBuf],
) -> impl Iterator<Item = (&'a PathBuf, String)> {
    let is_source = |file: &&PathBuf| file.extension().is_some_and(|extension| extension == "rs");
    tracked
        .iter()
        .filter(is_source)
        .map(|file| (file, std::fs::read_to_string(root.join(file)).unwrap_or_default()))
}

/// Every file that was found and is not listed, and every listed one that was not found, each with its fault.
pub(crate) fn compare<T>(listed: &[(&str, T)], found: &[String], [new, stale]: [&str; 2]) -> Vec<String> {
    let added = found.iter().filter(|file| !listed.iter().any(|(known, _)| known == file));
    let mut faults: Vec<String> = added.map(|file| format!("{file}: {new}")).collect();
    let gone = listed.iter().filter(|(file, _)| !found.iter().any(|other| other == file));
    faults.extend(gone.map(|(file, _)| format!("{file}: {stale}")));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_and_stale_files_are_faults() {
        let found = ["b", "c"].map(str::to_owned);
        let faults = compare(&[("a", ""), ("b", "")], &found, ["is new", "is stale"]);
        assert_eq!(faults, ["c: is new", "a: is stale"]);
    }
}
