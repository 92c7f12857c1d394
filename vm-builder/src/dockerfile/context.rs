//! The directory that `COPY` takes files from. Nothing outside of it is read.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use neonvm_disk::tree::{InodeId, Kind, Time, Tree};

use super::Fault;
use super::evaluate::Copy;
use super::ignore::{Ignore, name_matches, parts};
use crate::layer::LayerSources;
use crate::source::{Error, Options, Owner, walk_where};

/// Longest `.dockerignore`, in bytes.
const LONGEST_IGNORE: u64 = 1 << 20;

/// What is read of the context.
pub(super) struct Context {
    root: PathBuf,
    ignore: Ignore,
}

/// One source of a `COPY`: its parts, each a name or a pattern.
pub(super) type Pattern = Vec<Vec<u8>>;

impl Context {
    /// Opens the directory.
    pub(super) fn open(directory: &Path) -> Result<Self, Error> {
        let root = directory.canonicalize().map_err(|error| Error::io("read", directory, error))?;
        let path = root.join(".dockerignore");
        let ignore = match crate::cache::read_limited(&path, LONGEST_IGNORE) {
            Ok(bytes) => Ignore::parse(&String::from_utf8_lossy(&bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ignore::default(),
            Err(error) => return Err(Error::io("read", &path, error)),
        };
        Ok(Self { root, ignore })
    }

    /// A path of the context on the host, with links followed.
    ///
    /// # Errors
    /// If it does not exist or leads out of the context.
    pub(super) fn resolve(&self, line: usize, what: &str, path: &str) -> Result<PathBuf, Fault> {
        let relative = inside(path).ok_or_else(|| out_of_context(line, what, path))?;
        let missing = || {
            Fault::new(line, format!("{what} {path:?} does not exist in {}", self.root.display()))
                .remedy("paths are relative to the directory of the Dockerfile")
        };
        let found = self.root.join(relative).canonicalize().map_err(|_| missing())?;
        if found.starts_with(&self.root) { Ok(found) } else { Err(out_of_context(line, what, path)) }
    }

    /// The patterns of the sources of an instruction.
    pub(super) fn patterns(&self, copy: &Copy) -> Result<Vec<Pattern>, Fault> {
        copy.sources.iter().map(|source| self.pattern(copy.line, source)).collect()
    }

    fn pattern(&self, line: usize, source: &str) -> Result<Pattern, Fault> {
        let what = "the source of COPY";
        if source.contains(['*', '?', '[']) {
            // Directories that are links are not followed.
            inside(source).ok_or_else(|| out_of_context(line, what, source))?;
            return Ok(parts(source).into_iter().map(<[u8]>::to_vec).collect());
        }
        let found = self.resolve(line, what, source)?;
        let relative = found.strip_prefix(&self.root).unwrap_or(Path::new(""));
        Ok(relative.components().map(|part| escaped(part.as_os_str().as_bytes())).collect())
    }

    /// All that the patterns need, as a tree; with the contents.
    pub(super) fn read(
        &self,
        patterns: &[Pattern],
        options: &Options,
    ) -> Result<(Tree, LayerSources), Error> {
        let options = Options { owner: Owner::Root, ..options.clone() };
        let keep = |path: &Path, is_directory: bool| {
            let names: Vec<&[u8]> = path.components().map(|part| part.as_os_str().as_bytes()).collect();
            let wanted = patterns.iter().any(|pattern| is_on_the_way(pattern, &names));
            let may_stay = is_directory && self.ignore.has_exceptions();
            wanted && (may_stay || !self.ignore.leaves_out(&names))
        };
        let (mut tree, sources) = walk_where(&self.root, &options, &keep)?;
        let root = tree.root();
        self.prune(&mut tree, root, &mut Vec::new());
        // A directory changes its time when a file is written into it, such as the disk of the last build.
        untimed(&mut tree, root);
        Ok((tree, sources))
    }

    /// Removes directories that are left out and have nothing that is not.
    fn prune(&self, tree: &mut Tree, directory: InodeId, path: &mut Vec<Vec<u8>>) {
        let names: Vec<(Vec<u8>, InodeId)> =
            tree.names(directory).into_iter().flatten().map(|(name, child)| (name.clone(), *child)).collect();
        for (name, child) in names {
            if tree.names(child).is_none() {
                continue;
            }
            path.push(name.clone());
            self.prune(tree, child, path);
            let shown: Vec<&[u8]> = path.iter().map(Vec::as_slice).collect();
            let is_empty = tree.names(child).is_none_or(std::collections::BTreeMap::is_empty);
            if is_empty && self.ignore.leaves_out(&shown) {
                tree.unlink(directory, &name);
            }
            path.pop();
        }
    }
}

/// Takes the times of all directories away.
fn untimed(tree: &mut Tree, root: InodeId) {
    let mut ahead = vec![root];
    while let Some(directory) = ahead.pop() {
        if let Some(inode) = tree.get_mut(directory) {
            inode.metadata.modified = Time::default();
        }
        let children = tree.names(directory).into_iter().flatten().map(|(_, child)| *child);
        ahead.extend(children.filter(|child| is_directory(tree, *child)).collect::<Vec<_>>());
    }
}

/// What a pattern matches in a tree of the context, with the last name of each; none for the context itself.
pub(super) fn matching(tree: &Tree, pattern: &Pattern) -> Vec<(Option<Vec<u8>>, InodeId)> {
    let mut found = vec![(None, tree.root())];
    for part in pattern {
        let below = found.iter().flat_map(|(_, directory)| tree.names(*directory).into_iter().flatten());
        found = below
            .filter(|(name, _)| name_matches(part, name))
            .map(|(name, child)| (Some(name.clone()), *child))
            .collect();
    }
    found
}

/// Whether a path leads to what a pattern matches, or lies below it.
fn is_on_the_way(pattern: &Pattern, path: &[&[u8]]) -> bool {
    pattern.iter().zip(path).all(|(part, name)| name_matches(part, name))
}

/// A name that matches only itself.
fn escaped(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for byte in name {
        if matches!(byte, b'*' | b'?' | b'[' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out
}

/// A path relative to the context; `None` if its text leads out of it.
fn inside(path: &str) -> Option<PathBuf> {
    let relative = Path::new(path.trim_start_matches('/'));
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    relative.components().all(plain).then(|| relative.to_owned())
}

fn out_of_context(line: usize, what: &str, path: &str) -> Fault {
    Fault::new(line, format!("{what} {path:?} leads out of the context, the directory of the Dockerfile"))
        .remedy("move the file into the context, or the Dockerfile up")
}

/// Whether an inode is a directory.
pub(super) fn is_directory(tree: &Tree, inode: InodeId) -> bool {
    tree.get(inode).is_some_and(|inode| matches!(inode.kind, Kind::Directory(_)))
}
