//! Whiteouts: what a layer takes away from the layers below, and only from those.
//!
//! The order of entries in a layer does not matter: a whiteout after an entry must not remove it. What belongs to
//! the layer at hand is recognised by the age of inodes – they are numbered in order – and by two lists of exceptions.

use std::collections::HashSet;

use neonvm_disk::tree::{InodeId, Kind, Tree};

use super::path::implied_directory;

#[derive(Debug, Default)]
pub(super) struct Layer {
    /// First inode of this layer; none yet if there is none.
    first: Option<InodeId>,
    /// Directories of lower layers that this layer has entries for.
    touched: HashSet<InodeId>,
    /// Names that this layer has given to inodes of lower layers: hard links.
    linked: HashSet<(InodeId, Vec<u8>)>,
    /// Directories of lower layers in which nothing of these is visible any more.
    clean: HashSet<InodeId>,
}

impl Layer {
    pub(super) fn made(&mut self, inode: InodeId) {
        self.first.get_or_insert(inode);
    }

    pub(super) fn touched(&mut self, directory: InodeId) {
        if !self.is_ours(directory) {
            self.touched.insert(directory);
        }
    }

    pub(super) fn linked(&mut self, directory: InodeId, name: &[u8], inode: InodeId) {
        if !self.is_ours(inode) {
            self.linked.insert((directory, name.to_vec()));
        }
    }

    /// A name was set again: its earlier state does not matter.
    pub(super) fn replaced(&mut self, directory: InodeId, name: &[u8]) {
        if !self.linked.is_empty() {
            self.linked.remove(&(directory, name.to_vec()));
        }
    }

    fn is_ours(&self, inode: InodeId) -> bool {
        self.first.is_some_and(|first| inode >= first)
    }

    /// Hides what lower layers have under a name.
    pub(super) fn hide(&mut self, tree: &mut Tree, directory: InodeId, name: &[u8]) {
        let Some(child) = tree.child(directory, name) else { return };
        if tree.names(child).is_some() {
            self.hide_children(tree, child);
        }
        if !self.stays(tree, directory, name, child) {
            tree.unlink(directory, name);
        }
        self.forget(tree, child);
    }

    /// Hides what lower layers have in a directory. Each directory is walked once in a layer, however often this is
    /// called for it.
    pub(super) fn hide_children(&mut self, tree: &mut Tree, directory: InodeId) {
        let mut found = vec![directory];
        let mut next = 0;
        while let Some(&at) = found.get(next) {
            next += 1;
            if self.is_ours(at) || self.clean.contains(&at) {
                continue;
            }
            let children = tree.names(at).into_iter().flat_map(|names| names.values());
            let directories = children.filter(|child| tree.names(**child).is_some());
            found.extend(directories);
        }
        // From the leaves on: whether a directory stays depends on what stays in it.
        for at in found.into_iter().rev() {
            if self.is_ours(at) || !self.clean.insert(at) {
                continue;
            }
            let names = match tree.get_mut(at).map(|inode| &mut inode.kind) {
                Some(Kind::Directory(names)) => std::mem::take(names),
                _ => continue,
            };
            let mut kept = names;
            kept.retain(|name, child| self.stays(tree, at, name, *child));
            for child in kept.values() {
                self.forget(tree, *child);
            }
            if let Some(Kind::Directory(names)) = tree.get_mut(at).map(|inode| &mut inode.kind) {
                *names = kept;
            }
        }
    }

    /// A hidden directory that stays for what this layer put into it counts as not described.
    fn forget(&self, tree: &mut Tree, directory: InodeId) {
        if self.is_ours(directory) || self.touched.contains(&directory) {
            return;
        }
        if let Some(inode) = tree.get_mut(directory)
            && matches!(inode.kind, Kind::Directory(_))
        {
            inode.metadata = implied_directory().metadata;
        }
    }

    fn stays(&self, tree: &Tree, directory: InodeId, name: &[u8], child: InodeId) -> bool {
        self.is_ours(child)
            || self.touched.contains(&child)
            || tree.names(child).is_some_and(|names| !names.is_empty())
            || (!self.linked.is_empty() && self.linked.contains(&(directory, name.to_vec())))
    }
}
