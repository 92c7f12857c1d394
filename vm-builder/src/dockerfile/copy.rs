//! Puts parts of one tree into another. Pure.

use std::collections::HashMap;

use neonvm_disk::tree::{Content, Inode, InodeId, Kind, Metadata, Origin, Piece, SourceId, Time, Tree};

use super::context::{self, Pattern};
use super::evaluate::Copy;
use crate::inject;

/// Sources of the context are numbered from here in the tree of the image, which has fewer of its own.
pub(super) const CONTEXT_SOURCES: u32 = 1 << 31;

/// Owner and group of what is copied.
pub(super) type Ids = (u32, u32);

/// What one `COPY` puts where.
pub(super) struct Job<'a> {
    pub(super) copy: &'a Copy,
    pub(super) patterns: &'a [Pattern],
    pub(super) owner: Ids,
}

/// Carries out one `COPY`.
///
/// # Errors
/// What is in the way, in words.
pub(super) fn carry_out(job: &Job<'_>, context: &Tree, image: &mut Tree) -> Result<(), String> {
    let mut found = Vec::new();
    for (pattern, source) in job.patterns.iter().zip(&job.copy.sources) {
        let some = context::matching(context, pattern);
        if some.is_empty() {
            return Err(format!(
                "{source:?} matches nothing in the context that .dockerignore does not leave out"
            ));
        }
        found.extend(some);
    }
    let has_directory = found.iter().any(|(_, inode)| context::is_directory(context, *inode));
    if found.len() > 1
        && !job.copy.into_directory
        && !has_directory
        && !is_directory_at(image, &job.copy.target)
    {
        return Err(format!(
            "several sources need a directory: write the target as {:?}",
            format!("{}/", job.copy.target)
        ));
    }
    let mut copier = Copier { context, image, job, done: HashMap::new() };
    for (name, inode) in found {
        copier.top(name, inode)?;
    }
    Ok(())
}

/// Makes a directory of root's where there is none.
pub(super) fn make_directory(image: &mut Tree, path: &str) -> Result<InodeId, String> {
    let path = path.trim_matches('/');
    if path.is_empty() {
        return Ok(image.root());
    }
    if path.split('/').any(|part| part.len() > 255) {
        return Err("a name of the path has more than 255 bytes".to_owned());
    }
    inject::directory(image, path, 0o755, Time::default())
        .map_err(|taken| format!("{} of the image is not a directory", taken.path))
}

fn is_directory_at(image: &Tree, path: &str) -> bool {
    crate::content::find(image, path.as_bytes()).is_some_and(|found| context::is_directory(image, found))
}

struct Copier<'a> {
    context: &'a Tree,
    image: &'a mut Tree,
    job: &'a Job<'a>,
    /// Files with several names.
    done: HashMap<InodeId, InodeId>,
}

impl Copier<'_> {
    /// One source: what is in a directory goes into the target; a file becomes the target or goes into it.
    fn top(&mut self, name: Option<Vec<u8>>, inode: InodeId) -> Result<(), String> {
        let target = &self.job.copy.target;
        if context::is_directory(self.context, inode) {
            let to = make_directory(self.image, target)?;
            return self.content(inode, to);
        }
        if self.job.copy.into_directory || is_directory_at(self.image, target) || target == "/" {
            let to = make_directory(self.image, target)?;
            return self.place(inode, to, &name.unwrap_or_default());
        }
        let (parent, last) = target.rsplit_once('/').unwrap_or(("", target));
        if last.len() > 255 {
            return Err("a name of the target has more than 255 bytes".to_owned());
        }
        let to = make_directory(self.image, parent)?;
        self.place(inode, to, last.as_bytes())
    }

    fn content(&mut self, directory: InodeId, to: InodeId) -> Result<(), String> {
        for (name, child) in self.context.names(directory).into_iter().flatten() {
            self.place(*child, to, name)?;
        }
        Ok(())
    }

    fn place(&mut self, inode: InodeId, to: InodeId, name: &[u8]) -> Result<(), String> {
        let Some(source) = self.context.get(inode) else { return Ok(()) };
        let shown = || crate::source::printable(name);
        let there = self.image.child(to, name);
        let there_is_directory = there.is_some_and(|there| context::is_directory(self.image, there));
        if let Kind::Directory(_) = source.kind {
            let target = match there {
                Some(there) if there_is_directory => there,
                Some(_) => {
                    return Err(format!("{} is a directory in the context and none in the image", shown()));
                }
                None => self.add(source, Kind::Directory(Default::default()), to, name)?,
            };
            return self.content(inode, target);
        }
        if there_is_directory {
            return Err(format!("{} is a directory in the image and none in the context", shown()));
        }
        if let Some(done) = self.done.get(&inode) {
            self.image.link(to, name, *done);
            return Ok(());
        }
        let kind = match &source.kind {
            Kind::File(content) => Kind::File(shifted(content)),
            kind => kind.clone(),
        };
        let made = self.add(source, kind, to, name)?;
        self.done.insert(inode, made);
        Ok(())
    }

    fn add(&mut self, source: &Inode, kind: Kind, to: InodeId, name: &[u8]) -> Result<InodeId, String> {
        let (uid, gid) = self.job.owner;
        // Permissions of a link have no meaning.
        let mode = match (&kind, self.job.copy.mode) {
            (Kind::Symlink(_), _) | (_, None) => source.metadata.mode,
            (_, Some(mode)) => mode,
        };
        let metadata = Metadata { mode, uid, gid, ..source.metadata.clone() };
        let made = self.image.add(Inode { metadata, kind }).ok_or("the image has too many files")?;
        self.image.link(to, name, made);
        Ok(made)
    }
}

/// Content whose sources have the numbers that they have in the image.
fn shifted(content: &Content) -> Content {
    let piece = |piece: &Piece| Piece {
        origin: match &piece.origin {
            Origin::Source { source, offset } => {
                Origin::Source { source: SourceId(source.0.saturating_add(CONTEXT_SOURCES)), offset: *offset }
            }
            memory => memory.clone(),
        },
        ..piece.clone()
    };
    Content { length: content.length, pieces: content.pieces.iter().map(piece).collect() }
}
