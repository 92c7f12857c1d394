//! The identity of a tree that has no manifest: a digest of everything in it.
//!
//! Two trees have the same digest if and only if they have the same names, metadata, contents and hard links – not
//! depending on the order in which they were read, nor on where holes are.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use neonvm_disk::tree::{Content, Inode, InodeId, Kind, Origin, Sources, Tree};

use super::Error;
use crate::reference::{Digest, Hasher};

/// Bytes read at a time.
const BLOCK: usize = 1 << 17;

/// Computes the digest of a tree; reads all its content, on up to four threads.
pub fn tree_digest(tree: &Tree, sources: &dyn Sources) -> Result<Digest, Error> {
    let order = order(tree);
    let files: Vec<(InodeId, &Content)> = order
        .iter()
        .filter(|step| step.first)
        .filter_map(|step| match tree.get(step.inode).map(|inode| &inode.kind) {
            Some(Kind::File(content)) => Some((step.inode, content)),
            _ => None,
        })
        .collect();
    let contents = contents(&files, sources)?;
    let mut hasher = Hasher::default();
    hasher.update(b"neonvm tree 1\n");
    for step in &order {
        hasher.update(&step.depth.to_le_bytes());
        text(&mut hasher, step.name);
        hasher.update(&step.number.to_le_bytes());
        if step.first
            && let Some(inode) = tree.get(step.inode)
        {
            describe(&mut hasher, inode, contents.get(&step.inode));
        }
    }
    Ok(hasher.finish())
}

/// A name on the way through the tree.
struct Step<'a> {
    depth: u64,
    name: &'a [u8],
    inode: InodeId,
    /// How many inodes came before this one for the first time.
    number: u64,
    first: bool,
}

/// All names, parents before children, in the order of their bytes.
fn order(tree: &Tree) -> Vec<Step<'_>> {
    let mut numbers = HashMap::new();
    let mut steps = Vec::new();
    let mut ahead: Vec<(u64, &[u8], InodeId)> = vec![(0, b"", tree.root())];
    while let Some((depth, name, inode)) = ahead.pop() {
        let next = numbers.len() as u64;
        let number = *numbers.entry(inode).or_insert(next);
        let first = number == next;
        steps.push(Step { depth, name, inode, number, first });
        if first && let Some(names) = tree.names(inode) {
            ahead.extend(names.iter().rev().map(|(name, child)| (depth + 1, name.as_slice(), *child)));
        }
    }
    steps
}

fn text(hasher: &mut Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

fn describe(hasher: &mut Hasher, inode: &Inode, content: Option<&Digest>) {
    let metadata = &inode.metadata;
    hasher.update(&metadata.mode.to_le_bytes());
    hasher.update(&metadata.uid.to_le_bytes());
    hasher.update(&metadata.gid.to_le_bytes());
    hasher.update(&metadata.modified.seconds.to_le_bytes());
    hasher.update(&metadata.modified.nanoseconds.to_le_bytes());
    hasher.update(&(metadata.xattrs.len() as u64).to_le_bytes());
    for (name, value) in &metadata.xattrs {
        text(hasher, name);
        text(hasher, value);
    }
    match &inode.kind {
        Kind::Directory(_) => hasher.update(b"d"),
        Kind::File(file) => {
            hasher.update(b"f");
            hasher.update(&file.length.to_le_bytes());
            hasher.update(content.map(|digest| digest.as_bytes().as_slice()).unwrap_or_default());
        }
        Kind::Symlink(target) => {
            hasher.update(b"l");
            text(hasher, target);
        }
        Kind::CharacterDevice { major, minor } | Kind::BlockDevice { major, minor } => {
            hasher.update(if matches!(inode.kind, Kind::BlockDevice { .. }) { b"b" } else { b"c" });
            hasher.update(&major.to_le_bytes());
            hasher.update(&minor.to_le_bytes());
        }
        Kind::Fifo => hasher.update(b"p"),
        Kind::Socket => hasher.update(b"s"),
    }
}

fn contents(files: &[(InodeId, &Content)], sources: &dyn Sources) -> Result<HashMap<InodeId, Digest>, Error> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new((HashMap::with_capacity(files.len()), None));
    let work = || {
        let mut buffer = vec![0; BLOCK];
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((inode, content)) = files.get(index) else { return };
            let result = content_digest(content, sources, &mut buffer);
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(digest) => {
                    found.0.insert(*inode, digest);
                }
                Err(error) => {
                    found.1 = Some(error);
                    next.store(files.len(), Ordering::Relaxed);
                    return;
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4).min(files.len());
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    match found.into_inner().unwrap_or_else(PoisonError::into_inner) {
        (_, Some(error)) => Err(Error::io("read", Path::new("content"), error)),
        (digests, None) => Ok(digests),
    }
}

/// The digest of what is not zero, with where it is, block by block: holes and stored zeros are the same.
fn content_digest(content: &Content, sources: &dyn Sources, block: &mut [u8]) -> io::Result<Digest> {
    let mut hasher = Hasher::default();
    let mut current = None;
    for piece in &content.pieces {
        let mut done = 0;
        while done < piece.length {
            let at = piece.at + done;
            let inner = at % BLOCK as u64;
            let start = at - inner;
            if current != Some(start) {
                flush(&mut hasher, current, content.length, block);
                block.fill(0);
                current = Some(start);
            }
            let count = (BLOCK as u64 - inner).min(piece.length - done);
            let from = usize::try_from(inner).unwrap_or(BLOCK);
            let size = usize::try_from(count).unwrap_or(BLOCK);
            let part = block.get_mut(from..from + size).unwrap_or_default();
            match &piece.origin {
                Origin::Memory(bytes) => {
                    let from = usize::try_from(done).unwrap_or(usize::MAX);
                    let from = bytes.get(from..).and_then(|rest| rest.get(..size));
                    part.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
                }
                Origin::Source { source, offset } => sources.read_exact_at(*source, offset + done, part)?,
            }
            done += count;
        }
    }
    flush(&mut hasher, current, content.length, block);
    Ok(hasher.finish())
}

fn flush(hasher: &mut Hasher, start: Option<u64>, length: u64, block: &[u8]) {
    let Some(start) = start else { return };
    let within = usize::try_from(length - start.min(length)).unwrap_or(BLOCK).min(BLOCK);
    let block = block.get(..within).unwrap_or(block);
    if block.iter().any(|byte| *byte != 0) {
        hasher.update(&start.to_le_bytes());
        hasher.update(block);
    }
}
