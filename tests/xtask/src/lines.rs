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
