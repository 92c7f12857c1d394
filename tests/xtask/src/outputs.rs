//! How commands write files. All files that are written for people go through `neonvm_builder::out`, which replaces a regular file in one
//! step, follows links and writes into pipes and devices; so no command calls the file system for that itself.

use std::path::{Path, PathBuf};

/// Files of commands that write otherwise, and why.
const FILES: [(&str, &str); 2] = [
    ("cli/src/instance.rs", "locks of a local cluster, in its directory"),
    ("cli/src/commands/local/start.rs", "the log of a local cluster, in its directory"),
];

/// Where commands are.
const COMMANDS: &str = "cli/src/";

/// What makes, truncates, copies or renames a file.
const WRITES: [&str; 7] = [
    "fs::write(",
    "File::create",
    "fs::copy(",
    "fs::rename(",
    "fs::OpenOptions",
    ".persist",
    ".create(true)",
];

/// Every file of a command that writes files itself and is not listed, and every listed one that does not.
pub(crate) fn faults(root: &Path, tracked: &[PathBuf]) -> Vec<String> {
    let is_command = |file: &&PathBuf| {
        file.starts_with(COMMANDS)
            && !file.to_string_lossy().contains("tests")
            && file.extension().is_some_and(|e| e == "rs")
    };
    let found: Vec<String> = tracked
        .iter()
        .filter(is_command)
        .filter(|file| writes(&std::fs::read_to_string(root.join(file)).unwrap_or_default()))
        .map(|file| file.display().to_string())
        .collect();
    compare(&found)
}

fn compare(found: &[String]) -> Vec<String> {
    let new = found.iter().filter(|file| !FILES.iter().any(|(known, _)| known == file));
    let mut faults: Vec<String> = new
        .map(|file| {
            format!("{file}: writes a file itself; use neonvm_builder::out, or list it in outputs.rs")
        })
        .collect();
    let stale = FILES.iter().filter(|(file, _)| !found.iter().any(|other| other == file));
    faults.extend(
        stale.map(|(file, _)| format!("{file}: writes no file itself any more; remove it from outputs.rs")),
    );
    faults
}

/// Whether the product's part of a file writes files itself.
fn writes(text: &str) -> bool {
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    WRITES.iter().any(|word| product.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_writes_files_itself_is_a_fault_unless_it_is_listed() {
        assert!(writes("std::fs::write(&path, text)") && writes("let file = File::create(path)?;"));
        assert!(!writes("out::text(&path, &text)") && !writes("#[cfg(test)]\nmod tests { fs::write(x, y) }"));
        let mut found: Vec<String> = FILES.iter().map(|(file, _)| (*file).to_owned()).collect();
        assert_eq!(compare(&found), Vec::<String>::new());
        found[0] = "cli/src/commands/man.rs".to_owned();
        assert_eq!(compare(&found).len(), 2);
    }
}
