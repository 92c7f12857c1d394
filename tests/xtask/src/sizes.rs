//! Size limits of source files. `sizes.txt` lists the exceptions; an exception may only shrink.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::lines::{before_tests, is_of_tests, sources};

/// Product lines a file may have.
const PRODUCT: usize = 600;
/// Lines a file of tests may have.
const TESTS: usize = 900;
/// Where the exceptions are: `<lines> <path>` a line.
const EXCEPTIONS: &str = "tests/xtask/sizes.txt";

/// Every file above its limit, and every exception that is no longer as it is written down.
pub(crate) fn faults(root: &Path, tracked: &[PathBuf]) -> Vec<String> {
    let listed = std::fs::read_to_string(root.join(EXCEPTIONS)).unwrap_or_default();
    let mut exceptions: BTreeMap<&str, usize> = listed
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(lines, path)| Some((path.trim(), lines.parse().ok()?)))
        .collect();
    let mut faults = Vec::new();
    for (file, text) in sources(root, tracked) {
        let shown = file.display().to_string();
        let (lines, limit) = measure(file, &text);
        match exceptions.remove(shown.as_str()) {
            Some(allowed) if lines > allowed => {
                faults.push(format!("{shown}: {lines} lines, {allowed} in {EXCEPTIONS}"));
            }
            Some(_) if lines <= limit => {
                faults.push(format!("{shown}: below its limit now, remove it from {EXCEPTIONS}"));
            }
            Some(allowed) if lines < allowed => {
                faults.push(format!("{shown}: shrank, write {lines} into {EXCEPTIONS}"));
            }
            None if lines > limit => {
                faults.push(format!("{shown}: {lines} lines, at most {limit}; split it"));
            }
            _ => {}
        }
    }
    faults.extend(exceptions.keys().map(|path| format!("{path}: gone, remove it from {EXCEPTIONS}")));
    faults
}

/// Lines that count, and how many there may be.
fn measure(file: &Path, text: &str) -> (usize, usize) {
    let is_test = is_of_tests(file) && !file.starts_with("tests/xtask") && !file.starts_with("tests/bench");
    if is_test {
        return (text.lines().count(), TESTS);
    }
    (before_tests(text), PRODUCT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_in_a_file_do_not_count() {
        let text = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", "a\n".repeat(10), "b\n".repeat(1000));
        assert_eq!(measure(Path::new("cli/src/a.rs"), &text), (10, PRODUCT));
        assert_eq!(measure(Path::new("cli/src/a/tests.rs"), &text).1, TESTS);
    }

    #[test]
    fn exceptions_may_only_shrink() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("tests/xtask")).unwrap();
        std::fs::write(root.path().join("a.rs"), "x\n".repeat(700)).unwrap();
        let check = |listed: &str| {
            std::fs::write(root.path().join(EXCEPTIONS), listed).unwrap();
            faults(root.path(), &["a.rs".into()])
        };
        assert_eq!(check(""), ["a.rs: 700 lines, at most 600; split it"]);
        assert!(check("700 a.rs\n").is_empty());
        assert_eq!(check("650 a.rs\n"), ["a.rs: 700 lines, 650 in tests/xtask/sizes.txt"]);
        assert_eq!(check("800 a.rs\n"), ["a.rs: shrank, write 700 into tests/xtask/sizes.txt"]);
    }
}
