//! Source files that no `mod` declaration reaches: they look like code and are never compiled.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::package::Package;

/// The programs of a workspace of its own, which only cargo-fuzz builds.
const APART: &str = "tests/fuzz/libfuzzer/target.rs";

/// Files among `tracked` that belong to a crate and are not part of any of its targets.
pub(crate) fn faults(root: &Path, packages: &[Package], tracked: &[PathBuf]) -> Vec<String> {
    let mut reached = BTreeSet::new();
    for start in packages.iter().flat_map(|package| &package.roots) {
        let above = start.parent().unwrap_or(Path::new("")).to_path_buf();
        walk(root, start, &above, &mut reached);
    }
    reached.insert(PathBuf::from(APART));
    tracked
        .iter()
        .filter(|file| {
            file.extension().is_some_and(|extension| extension == "rs") && !reached.contains(*file)
        })
        .map(|file| format!("{}: no mod declaration reaches it", file.display()))
        .collect()
}

/// Marks `file` and what it declares; `below` is where its submodules are.
fn walk(root: &Path, file: &Path, below: &Path, reached: &mut BTreeSet<PathBuf>) {
    if !reached.insert(file.to_path_buf()) {
        return;
    }
    let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
    for name in text.lines().filter_map(declared) {
        let flat = below.join(format!("{name}.rs"));
        if root.join(&flat).is_file() {
            walk(root, &flat, &below.join(name), reached);
        }
    }
}

/// The module that a line such as `pub(crate) mod name;` declares.
fn declared(line: &str) -> Option<&str> {
    let (before, name) = line.trim().strip_suffix(';')?.rsplit_once("mod ")?;
    let visible = before.is_empty() || before.starts_with("pub");
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (visible && plain).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_distinguished_from_other_lines() {
        assert_eq!(declared("mod a_1;"), Some("a_1"));
        assert_eq!(declared("    pub(crate) mod b;"), Some("b"));
        assert_eq!(declared("// mod c;"), None);
        assert_eq!(declared("mod d {"), None);
        assert_eq!(declared("let mod_e = 1;"), None);
    }

    #[test]
    fn a_file_without_declaration_is_an_orphan() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("src/a")).unwrap();
        for (name, text) in
            [("src/lib.rs", "mod a;"), ("src/a.rs", "mod b;"), ("src/a/b.rs", ""), ("src/c.rs", "")]
        {
            std::fs::write(root.path().join(name), text).unwrap();
        }
        let package = Package { roots: vec!["src/lib.rs".into()], ..Package::default() };
        let tracked = ["src/lib.rs", "src/a.rs", "src/a/b.rs", "src/c.rs"].map(PathBuf::from);
        assert_eq!(faults(root.path(), &[package], &tracked), ["src/c.rs: no mod declaration reaches it"]);
    }
}
