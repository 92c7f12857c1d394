//! How commands write files. All files that are written for people go through `neonvm_builder::out`, which replaces a regular file in one
//! step, follows links and writes into pipes and devices; so no command calls the file system for that itself.

use std::path::{Path, PathBuf};

use crate::lines;

/// Files of commands that write otherwise, and why.
const FILES: [(&str, &str); 2] = [
    ("cli/src/instance.rs", "locks of a local cluster, in its directory"),
    ("cli/src/commands/local/start.rs", "the log of a local cluster, in its directory"),
];

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
    let is_command = |file: &Path| file.starts_with(COMMANDS) && !file.to_string_lossy().contains("tests");
    let found: Vec<String> = lines::sources(root, tracked)
        .filter(|(file, text)| is_command(file) && writes(text))
        .map(|(file, _)| file.display().to_string())
        .collect();
    let new = "writes a file itself; use neonvm_builder::out, or list it in outputs.rs";
    lines::compare(&FILES, &found, [new, "writes no file itself any more; remove it from outputs.rs"])
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
    fn only_the_product_counts() {
        assert!(writes("std::fs::write(&path, text)") && writes("let file = File::create(path)?;"));
        assert!(!writes("out::text(&path, &text)") && !writes("#[cfg(test)]\nmod tests { fs::write(x, y) }"));
    }
}
