mod forms;
mod hostile;
mod laws;
mod overlay;
mod programs;

use std::io::Cursor;

use neonvm_disk::tree::{Kind, Origin, SourceId, Tree};

use super::{Applier, Archive, Whiteouts};
use crate::source::{Error, Limits};

/// Applies archives one after another.
fn applied(layers: &[Vec<u8>]) -> Result<Tree, Error> {
    limited(layers, Limits::default())
}

fn limited(layers: &[Vec<u8>], limits: Limits) -> Result<Tree, Error> {
    let mut applier = Applier::new(limits);
    for (index, layer) in layers.iter().enumerate() {
        let mut archive = Archive::new(format!("layer {index}"), Cursor::new(layer))?;
        applier.apply(&mut archive, SourceId(u32::try_from(index).unwrap()), Whiteouts::Apply)?;
    }
    Ok(applier.into_tree())
}

/// A tree as lines: path, kind and what matters of it, content from the layers.
fn listed(tree: &Tree, layers: &[Vec<u8>]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut ahead = vec![(String::new(), tree.root())];
    while let Some((path, id)) = ahead.pop() {
        let inode = tree.get(id).unwrap();
        let what = match &inode.kind {
            Kind::Directory(names) => {
                for (name, child) in names.iter().rev() {
                    ahead.push((format!("{path}/{}", name.escape_ascii()), *child));
                }
                format!("dir {:o}", inode.metadata.mode)
            }
            Kind::File(_) => format!("file {}", content(tree, id, layers).escape_ascii()),
            Kind::Symlink(target) => format!("-> {}", target.escape_ascii()),
            other => format!("{other:?}"),
        };
        if !path.is_empty() {
            lines.push(format!("{path} {what}"));
        }
    }
    lines
}

fn content(tree: &Tree, id: neonvm_disk::tree::InodeId, layers: &[Vec<u8>]) -> Vec<u8> {
    let Kind::File(file) = &tree.get(id).unwrap().kind else { panic!("no file") };
    let mut bytes = vec![0; usize::try_from(file.length).unwrap()];
    for piece in &file.pieces {
        let Origin::Source { source, offset } = &piece.origin else { panic!("no source") };
        let from = &layers[source.0 as usize][*offset as usize..][..piece.length as usize];
        bytes[piece.at as usize..][..from.len()].copy_from_slice(from);
    }
    bytes
}

fn find(tree: &Tree, path: &str) -> Option<neonvm_disk::tree::InodeId> {
    path.split('/')
        .filter(|part| !part.is_empty())
        .try_fold(tree.root(), |at, name| tree.child(at, name.as_bytes()))
}
