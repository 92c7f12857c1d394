//! What must not be in a tracked file: paths of one machine, settings of one machine's package sources.

use std::path::{Path, PathBuf};

use crate::lines;

/// Beginnings of absolute paths that exist on a developer's machine only.
const MACHINE: &[&str] = &["/work/", "/root/", "/home/", "/Users/"];
/// Homes of no real user, for examples.
const HOMES: &[&str] = &["/home/x", "/home/test"];
/// Tables that redirect a package manager; elsewhere the same characters index something.
const TABLES: &[&str] = &["[source.", "[registries."];
/// Keys that redirect a package manager.
const SOURCES: &[&str] = &["replace-with", "index-url", "npm_config_registry"];
/// Files that may name them: this one and the settings it looks at are about them.
const EXEMPT: &[&str] = &["tests/xtask/src/wording.rs", "deny.toml"];
/// Where Cargo.lock may take packages from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Every such line.
pub(crate) fn faults(root: &Path, tracked: &[PathBuf]) -> Vec<String> {
    lines::faults(root, tracked, EXEMPT, |file, line| {
        let lock = file == Path::new("Cargo.lock");
        if lock { lock_fault(line) } else { line_fault(line) }.into_iter().collect()
    })
}

fn line_fault(line: &str) -> Option<String> {
    let machine = MACHINE.iter().find(|path| {
        line.match_indices(**path).any(|(at, _)| {
            let before = line.get(..at).and_then(|before| before.chars().last());
            // A path of its own, not the middle of another one such as `http://host/work/x` or `~/work/`.
            let example = HOMES.iter().any(|home| line.get(at..).is_some_and(|rest| rest.starts_with(home)));
            !example
                && before
                    .is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '~' | '.' | '}' | '*' | '-' | '_'))
        })
    });
    if let Some(path) = machine {
        return Some(format!("names a path below {path}"));
    }
    let table = TABLES.iter().find(|table| line.trim_start().starts_with(**table));
    table
        .or_else(|| SOURCES.iter().find(|key| line.contains(**key)))
        .map(|key| format!("redirects a package source: {key}"))
}

fn lock_fault(line: &str) -> Option<String> {
    let source = line.strip_prefix("source = ")?.trim_matches('"');
    (source != REGISTRY).then(|| format!("package from {source}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_paths_are_found_and_urls_are_not() {
        assert!(line_fault("see /work/x").is_some());
        assert!(line_fault("path = \"/root/a\"").is_some());
        assert!(line_fault("https://example.com/home/page").is_none());
        assert!(line_fault("~/work/x").is_none());
        assert!(line_fault("/home/x/.config").is_none() && line_fault("/home/me/.config").is_some());
        assert!(line_fault("[source.crates-io]").is_some() && line_fault("vec![source.name]").is_none());
        assert!(lock_fault("source = \"git+https://example.com\"").is_some());
        assert!(lock_fault(&format!("source = \"{REGISTRY}\"")).is_none());
    }
}
