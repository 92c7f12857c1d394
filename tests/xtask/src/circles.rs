//! Circles among the files of a crate: files that import from each other, so that none can be read alone. An import is a `use` or a
//! path from `crate`, `super` or `self` into another file, outside tests. A module and those below it count as one room: imports
//! between them are no arrows.
//!
//! New circles are faults; those in [`KNOWN`] may shrink, not grow.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::Visit;

/// Circles that exist: a file of each, and the number of its files.
const KNOWN: &[(&str, usize)] = &[
    ("controllers/local/apiserver/engine/src/schema/rules.rs", 2),
    ("controllers/local/apiserver/engine/src/schema/validate/checks.rs", 2),
];

/// The files that a file imports from.
type Imports = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

/// Each circle that is new or has grown, and each known one that is gone.
pub(crate) fn faults(root: &Path, tracked: &[PathBuf]) -> Vec<String> {
    let circles = circles(&imports(root, tracked));
    let mut faults = Vec::new();
    for circle in &circles {
        let known = KNOWN.iter().find(|(file, _)| circle.contains(Path::new(file)));
        match known {
            Some((_, size)) if circle.len() <= *size => {}
            Some((file, size)) => {
                faults.push(format!(
                    "{file}: its circle grew from {size} to {}: {}",
                    circle.len(),
                    names(circle)
                ));
            }
            None => faults.push(format!("{} files import each other: {}", circle.len(), names(circle))),
        }
    }
    let gone =
        KNOWN.iter().filter(|(file, _)| !circles.iter().any(|circle| circle.contains(Path::new(file))));
    faults.extend(gone.map(|(file, _)| format!("{file}: no circle any more; remove it from KNOWN")));
    faults
}

fn names(circle: &BTreeSet<PathBuf>) -> String {
    circle.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The imports of the sources of every crate.
fn imports(root: &Path, tracked: &[PathBuf]) -> Imports {
    let mut by_module: BTreeMap<(PathBuf, Vec<String>), PathBuf> = BTreeMap::new();
    for file in tracked {
        if let Some(module) = module(file) {
            by_module.insert(module, file.clone());
        }
    }
    let mut imports = Imports::new();
    for ((source, own), file) in &by_module {
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        let Ok(parsed) = syn::parse_file(&text) else { continue };
        let mut paths = Paths::default();
        paths.visit_file(&parsed);
        let found = paths.found.iter().filter_map(|path| resolve(&by_module, source, own, path));
        let others: BTreeSet<PathBuf> =
            found.filter(|other| !is_below(file, other) && !is_below(other, file)).collect();
        imports.insert(file.clone(), others);
    }
    imports
}

/// Whether a file is the module of another one or of one above it.
fn is_below(file: &Path, module: &Path) -> bool {
    let root = module.file_name().is_some_and(|name| name == "lib.rs");
    let directory = if root { module.parent().map(Path::to_owned) } else { Some(module.with_extension("")) };
    file == module || directory.is_some_and(|directory| file.starts_with(directory))
}

/// The `src` directory of a file's crate, and the path of its module; `None` for a file of tests and for one outside `src`.
fn module(file: &Path) -> Option<(PathBuf, Vec<String>)> {
    let text = file.to_str()?.strip_suffix(".rs")?;
    let (before, inside) = text.split_once("/src/")?;
    let parts: Vec<String> = inside.split('/').map(str::to_owned).collect();
    if parts.iter().any(|part| part == "tests" || part == "bin") {
        return None;
    }
    let root = parts.len() == 1 && (inside == "lib" || inside == "main");
    let own = if root { Vec::new() } else { parts };
    Some((PathBuf::from(format!("{before}/src")), own)).filter(|_| inside != "main")
}

/// The file that defines the longest module at the start of a path.
fn resolve(
    files: &BTreeMap<(PathBuf, Vec<String>), PathBuf>,
    source: &Path,
    own: &[String],
    path: &[String],
) -> Option<PathBuf> {
    let mut absolute = own.to_vec();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            absolute.clear();
            rest = path.get(1..)?;
        }
        "self" => rest = path.get(1..)?,
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                absolute.pop();
                rest = rest.get(1..)?;
            }
        }
        first => {
            let child: Vec<String> = own.iter().cloned().chain([first.to_owned()]).collect();
            if !files.contains_key(&(source.to_owned(), child)) {
                return None;
            }
        }
    }
    absolute.extend(rest.iter().cloned());
    while !absolute.is_empty() {
        if let Some(file) = files.get(&(source.to_owned(), absolute.clone())) {
            return Some(file.clone());
        }
        absolute.pop();
    }
    files.get(&(source.to_owned(), absolute)).cloned()
}

/// All paths of a file but those of its tests.
#[derive(Default)]
struct Paths {
    found: Vec<Vec<String>>,
}

impl Paths {
    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| before.iter().cloned().chain([name.to_string()]).collect::<Vec<_>>();
        match tree {
            syn::UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.found.push(with(&name.ident)),
            syn::UseTree::Rename(name) => self.found.push(with(&name.ident)),
            syn::UseTree::Glob(_) => self.found.push(before.to_vec()),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree)),
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string().contains("test"))
    })
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        if !is_test(&import.attrs) {
            self.tree(&[], &import.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.found.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }
}

/// The strongly connected components of more than one file: those that reach each other.
fn circles(imports: &Imports) -> Vec<BTreeSet<PathBuf>> {
    let reach: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> =
        imports.keys().map(|file| (file, reached(imports, file))).collect();
    let mut circles: Vec<BTreeSet<PathBuf>> = Vec::new();
    for (file, own) in &reach {
        if circles.iter().any(|circle| circle.contains(*file)) {
            continue;
        }
        let back = |other: &&&PathBuf| reach.get(**other).is_some_and(|others| others.contains(file));
        let circle: BTreeSet<PathBuf> = own.iter().filter(back).map(|other| (*other).clone()).collect();
        if circle.len() > 1 {
            circles.push(circle);
        }
    }
    circles
}

/// The files that a file imports from, directly or not.
fn reached<'a>(imports: &'a Imports, file: &'a PathBuf) -> BTreeSet<&'a PathBuf> {
    let mut reached = BTreeSet::new();
    let mut todo = vec![file];
    while let Some(next) = todo.pop() {
        for other in imports.get(next).into_iter().flatten() {
            if reached.insert(other) {
                todo.push(other);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<BTreeSet<PathBuf>> {
        let root = tempfile::tempdir().unwrap();
        let mut tracked = Vec::new();
        for (file, text) in files {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
            tracked.push(PathBuf::from(file));
        }
        circles(&imports(root.path(), &tracked))
    }

    #[test]
    fn files_that_import_each_other_are_found() {
        let one = found(&[
            ("a/src/lib.rs", "mod x; mod y;"),
            ("a/src/x.rs", "use crate::y::Y; pub struct X;"),
            ("a/src/y.rs", "pub struct Y; fn f() -> super::x::X { super::x::X }"),
        ]);
        assert_eq!(one, [["a/src/x.rs", "a/src/y.rs"].map(PathBuf::from).into()]);
    }

    #[test]
    fn tests_and_other_crates_are_no_arrows() {
        let none = found(&[
            ("a/src/lib.rs", "mod x; mod y;"),
            ("a/src/x.rs", "use crate::y::Y; pub struct X;"),
            ("a/src/y.rs", "pub struct Y; #[cfg(test)] mod tests { use crate::x::X; }"),
            ("b/src/lib.rs", "mod x;"),
            ("b/src/x.rs", "use a::y::Y;"),
        ]);
        assert_eq!(none, Vec::<BTreeSet<PathBuf>>::new());
    }

    #[test]
    fn a_parent_and_its_child_are_one_room() {
        let none = found(&[
            ("a/src/lib.rs", "mod x;"),
            ("a/src/x.rs", "mod z; use z::Z; pub struct X;"),
            ("a/src/x/z.rs", "use super::X; pub struct Z;"),
        ]);
        assert!(none.is_empty(), "{none:?}");
    }
}
