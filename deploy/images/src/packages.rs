//! Unpacked packages, and an index of all their files. Each is unpacked by itself, so that it is known whose a file is; `/bin`,
//! `/lib` and their like are below `/usr`, as on an installed system.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::apt::run;

/// Links followed on the way to a file, as Linux does.
const MOST_LINKS: usize = 40;
/// Directories that are links into `/usr` on an installed system.
const MERGED: [&str; 5] = ["/bin/", "/sbin/", "/lib/", "/lib32/", "/lib64/"];

/// A package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Package {
    /// Its file.
    pub file: PathBuf,
    /// Fields of its control file, by name.
    pub fields: BTreeMap<String, String>,
}

impl Package {
    /// A field; empty if it has none.
    #[must_use]
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

/// What a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file, executable or not.
    File {
        /// Whether it can be executed.
        executable: bool,
    },
    /// A link, as an absolute path.
    Link(String),
    /// A directory.
    Directory,
}

/// A file of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Index of the package.
    pub package: usize,
    /// Where it is unpacked.
    pub host: PathBuf,
    /// What it is.
    pub kind: Kind,
}

/// Where a path leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// Links on the way.
    pub links: Vec<String>,
    /// The end: not a link.
    pub end: String,
}

/// Packages with their files.
#[derive(Clone, Debug, Default)]
pub struct Packages {
    all: Vec<Package>,
    files: BTreeMap<String, Found>,
}

impl Packages {
    /// Unpacks packages below a directory, unless they are there already, and reads what they hold.
    ///
    /// # Errors
    /// If one cannot be unpacked or read.
    pub fn open(files: &[PathBuf], work: &Path) -> Result<Self, Error> {
        let mut packages = Self::default();
        for file in files {
            let name = file.file_stem().unwrap_or_default();
            let tree = work.join(name);
            if !tree.is_dir() {
                unpack(file, work, &tree)?;
            }
            let fields = run(Command::new("dpkg-deb").arg("--field").arg(file))?;
            packages.add(Package { file: file.clone(), fields: fields_of(&fields) }, &tree)?;
        }
        Ok(packages)
    }

    /// Adds an unpacked package.
    ///
    /// # Errors
    /// If its tree cannot be read.
    pub fn add(&mut self, package: Package, tree: &Path) -> Result<(), Error> {
        let index = self.all.len();
        self.all.push(package);
        let mut open = vec![(tree.to_path_buf(), String::new())];
        while let Some((directory, path)) = open.pop() {
            let entries = std::fs::read_dir(&directory).map_err(Error::file("read", &directory))?;
            for entry in entries {
                let entry = entry.map_err(Error::file("read", &directory))?;
                let host = entry.path();
                let inside = format!("{path}/{}", entry.file_name().to_string_lossy());
                let metadata = entry.metadata().map_err(Error::file("read", &host))?;
                let kind = if metadata.is_symlink() {
                    let target = std::fs::read_link(&host).map_err(Error::file("read", &host))?;
                    let target = merged(&joined(&path, &target.to_string_lossy()));
                    // `/sbin` to `usr/sbin`, which base-files has since Debian 13: both names mean one directory here.
                    if target == merged(&inside) {
                        continue;
                    }
                    Kind::Link(target)
                } else if metadata.is_dir() {
                    open.push((host.clone(), inside.clone()));
                    Kind::Directory
                } else {
                    Kind::File { executable: metadata.permissions().mode() & 0o111 != 0 }
                };
                self.files.entry(merged(&inside)).or_insert(Found { package: index, host, kind });
            }
        }
        Ok(())
    }

    /// All packages.
    #[must_use]
    pub fn all(&self) -> &[Package] {
        &self.all
    }

    /// The entry at a path, which is not followed.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Found> {
        self.files.get(path)
    }

    /// Follows a path to its end. `None`: no package has it.
    #[must_use]
    pub fn way(&self, path: &str) -> Option<Way> {
        let mut way = Way { links: Vec::new(), end: merged(&joined("/", path)) };
        'again: for _ in 0..MOST_LINKS {
            let ends = way.end.match_indices('/').skip(1).map(|(at, _)| at).chain([way.end.len()]);
            for at in ends.collect::<Vec<_>>() {
                let (prefix, rest) = way.end.split_at(at);
                if let Some(Found { kind: Kind::Link(target), .. }) = self.files.get(prefix) {
                    let next = format!("{target}{rest}");
                    way.links.push(prefix.to_owned());
                    way.end = next;
                    continue 'again;
                }
            }
            return self.files.contains_key(&way.end).then_some(way);
        }
        None
    }

    /// Files and links below a directory, in order.
    pub fn below<'a>(&'a self, directory: &'a str) -> impl Iterator<Item = &'a str> {
        let from = self.files.range(directory.to_owned()..);
        let inside = from.take_while(move |(path, _)| path.starts_with(directory));
        inside.filter(|(_, found)| found.kind != Kind::Directory).map(|(path, _)| path.as_str())
    }

    /// Packages that have one of these paths.
    #[must_use]
    pub fn owners<'a>(&self, paths: impl Iterator<Item = &'a String>) -> BTreeSet<usize> {
        paths.filter_map(|path| self.files.get(path)).map(|found| found.package).collect()
    }
}

fn unpack(file: &Path, work: &Path, tree: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(work).map_err(Error::file("make", work))?;
    let fresh = tempfile::tempdir_in(work).map_err(Error::file("make a directory in", work))?;
    let inside = fresh.path().join("tree");
    run(Command::new("dpkg-deb").arg("--extract").arg(file).arg(&inside))?;
    std::fs::rename(&inside, tree).map_err(Error::file("make", tree))
}

/// `Key: value` lines; lines that go on are left out.
pub(crate) fn fields_of(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter(|line| !line.starts_with([' ', '\t']));
    let pair = |(key, value): (&str, &str)| (key.to_owned(), value.trim().to_owned());
    lines.filter_map(|line| line.split_once(':')).map(pair).collect()
}

/// A path as on an installed system.
fn merged(path: &str) -> String {
    let is_merged = MERGED.iter().any(|start| path.starts_with(start) || path == start.trim_end_matches('/'));
    if is_merged { format!("/usr{path}") } else { path.to_owned() }
}

/// A path, relative to a directory unless it is absolute, without dots.
pub(crate) fn joined(directory: &str, path: &str) -> String {
    let base = if path.starts_with('/') { "" } else { directory };
    let mut parts: Vec<&str> = Vec::new();
    for part in base.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An unpacked package with files (empty text: a directory; `->x`: a link).
    pub(crate) fn package(packages: &mut Packages, root: &Path, name: &str, files: &[(&str, &[u8])]) {
        let tree = root.join(name);
        std::fs::create_dir_all(&tree).unwrap();
        for (path, content) in files {
            let path = tree.join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            match content.strip_prefix(b"->") {
                Some(target) => {
                    std::os::unix::fs::symlink(std::str::from_utf8(target).unwrap(), path).unwrap();
                }
                None => std::fs::write(path, content).unwrap(),
            }
        }
        let fields = [("Package", name), ("Version", "1:2-3"), ("Architecture", "amd64")];
        let fields = fields.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        packages.add(Package { file: format!("{name}.deb").into(), fields }, &tree).unwrap();
    }

    #[test]
    fn paths_are_followed_over_links_of_files_and_directories() {
        let root = tempfile::tempdir().unwrap();
        let mut packages = Packages::default();
        let files: [(&str, &[u8]); 5] = [
            ("/lib/a/x.so.1", b"->x.so.1.2"),
            ("/lib/a/x.so.1.2", b"x"),
            ("/usr/share/doc/b", b"->a"),
            ("/usr/share/doc/a/copyright", b"c"),
            ("/lib64/ld.so", b"->/lib/a/x.so.1"),
        ];
        package(&mut packages, root.path(), "a", &files);
        let way = |path: &str| packages.way(path).map(|way| (way.links.join(" "), way.end));
        let some = |links: &str, end: &str| Some((links.to_owned(), end.to_owned()));
        assert_eq!(way("/lib/a/x.so.1"), some("/usr/lib/a/x.so.1", "/usr/lib/a/x.so.1.2"));
        assert_eq!(way("/lib64/ld.so"), some("/usr/lib64/ld.so /usr/lib/a/x.so.1", "/usr/lib/a/x.so.1.2"));
        assert_eq!(way("/usr/share/doc/b/copyright"), some("/usr/share/doc/b", "/usr/share/doc/a/copyright"));
        assert_eq!((way("/usr/share/doc/b/none"), way("/none")), (None, None));
        assert_eq!(packages.below("/usr/lib/a/").count(), 2);
    }

    #[test]
    fn a_directory_and_the_link_to_it_are_one() {
        let root = tempfile::tempdir().unwrap();
        let mut packages = Packages::default();
        package(&mut packages, root.path(), "base-files", &[("/sbin", b"->usr/sbin")]);
        package(&mut packages, root.path(), "nftables", &[("/usr/sbin/nft", b"x")]);
        for path in ["/sbin/nft", "/usr/sbin/nft"] {
            let way = packages.way(path).unwrap();
            assert_eq!((way.links.len(), way.end.as_str()), (0, "/usr/sbin/nft"), "{path}");
        }
    }

    #[test]
    fn a_link_to_itself_leads_nowhere() {
        let root = tempfile::tempdir().unwrap();
        let mut packages = Packages::default();
        package(&mut packages, root.path(), "a", &[("/x", b"->x"), ("/y", b"->/y/z")]);
        assert_eq!((packages.way("/x"), packages.way("/y")), (None, None));
    }
}
