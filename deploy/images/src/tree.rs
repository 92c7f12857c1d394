//! The files of a layer, by path. Owners and times are not kept: all is root's, of 1970.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::Error;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// The content of a file of this computer.
    File {
        /// The file.
        from: PathBuf,
        /// Whether it can be executed.
        executable: bool,
    },
    /// A file with these bytes.
    Bytes(Vec<u8>),
    /// A symbolic link.
    Link(String),
    /// A directory with its mode.
    Directory(u32),
}

/// The files of a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(BTreeMap<String, Node>);

impl Tree {
    /// Adds something at an absolute path, and the directories above it.
    ///
    /// # Errors
    /// If something else is there.
    pub fn add(&mut self, path: &str, node: Node) -> Result<(), Error> {
        let name = path.trim_start_matches('/');
        for (at, _) in name.match_indices('/') {
            let above = self.0.entry(name.split_at(at).0.to_owned()).or_insert(Node::Directory(0o755));
            if !matches!(above, Node::Directory(_)) {
                return Err(Error::Twice { path: path.to_owned() });
            }
        }
        match (self.0.get(name), &node) {
            // What is above something got a usual mode; this is the one that was asked for.
            (None, _) | (Some(Node::Directory(_)), Node::Directory(_)) => {
                self.0.insert(name.to_owned(), node);
                Ok(())
            }
            (Some(has), node) if has == node => Ok(()),
            _ => Err(Error::Twice { path: path.to_owned() }),
        }
    }

    /// Paths without the first slash, in order: directories before what is in them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.0.iter().map(|(path, node)| (path.as_str(), node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_above_are_made_and_nothing_is_replaced() {
        let mut tree = Tree::default();
        tree.add("/a/b/c", Node::Bytes(vec![1])).unwrap();
        tree.add("/a/b", Node::Directory(0o1777)).unwrap();
        tree.add("/a/b/c", Node::Bytes(vec![1])).unwrap();
        let paths: Vec<&str> = tree.iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["a", "a/b", "a/b/c"]);
        assert!(tree.iter().any(|(path, node)| path == "a/b" && *node == Node::Directory(0o1777)));
        assert!(
            tree.add("/a/b/c", Node::Bytes(vec![2])).unwrap_err().to_string().starts_with("/a/b/c comes")
        );
        assert!(tree.add("/a/b/c/d", Node::Bytes(vec![2])).is_err());
        assert!(tree.add("/a", Node::Link("x".into())).is_err());
    }
}
