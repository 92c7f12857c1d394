//! Addresses of pods, on disk: an address is another's only after its pod is removed, and as late as possible.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files;
use crate::naming::Subnet;

/// First address given: .0 is the network, .1 the gateway.
const FIRST: u32 = 2;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Book {
    /// By UID of the pod.
    held: BTreeMap<String, Ipv4Addr>,
    /// Where the next search begins.
    next: u32,
}

/// Addresses of the pods of a node.
#[derive(Debug)]
pub(super) struct Leases {
    path: PathBuf,
    pool: Subnet,
    book: Book,
}

impl Leases {
    /// Opens the book. Addresses outside of the pool are forgotten: the node has another network now.
    pub(super) fn open(path: &Path, pool: Subnet) -> io::Result<Self> {
        let mut book: Book = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Book::default(),
            Err(error) => return Err(error),
        };
        book.held.retain(|_, address| pool.contains(*address));
        Ok(Self { path: path.to_path_buf(), pool, book })
    }

    /// The address of a pod; a new one if it has none.
    pub(super) fn take(&mut self, uid: &str) -> io::Result<Ipv4Addr> {
        if let Some(address) = self.book.held.get(uid) {
            return Ok(*address);
        }
        let end = u32::try_from(self.pool.size()).unwrap_or(u32::MAX).saturating_sub(1);
        let count = end.saturating_sub(FIRST);
        let used: BTreeSet<Ipv4Addr> = self.book.held.values().copied().collect();
        for step in 0..count {
            let index = FIRST + (self.book.next + step) % count;
            if let Some(address) = self.pool.nth(index).filter(|address| !used.contains(address)) {
                self.book.next = (self.book.next + step + 1) % count;
                self.book.held.insert(uid.to_owned(), address);
                self.save()?;
                return Ok(address);
            }
        }
        Err(io::Error::other(format!("all {count} addresses of {} are in use", self.pool)))
    }

    /// Gives an address back.
    pub(super) fn release(&mut self, uid: &str) -> io::Result<()> {
        if self.book.held.remove(uid).is_some() { self.save() } else { Ok(()) }
    }

    /// Holders that are not in a list.
    pub(super) fn others(&self, keep: &BTreeSet<String>) -> Vec<String> {
        self.book.held.keys().filter(|uid| !keep.contains(*uid)).cloned().collect()
    }

    fn save(&self) -> io::Result<()> {
        files::replace(&self.path, &serde_json::to_vec(&self.book)?, 0o600)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_used_again_late() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases.json");
        let pool: Subnet = "10.1.2.0/29".parse().unwrap();
        let mut leases = Leases::open(&path, pool).unwrap();
        let first = leases.take("a").unwrap();
        assert_eq!((first, leases.take("a").unwrap()), ("10.1.2.2".parse().unwrap(), first));
        leases.release("a").unwrap();
        let mut leases = Leases::open(&path, pool).unwrap();
        let later: Vec<Ipv4Addr> = ["b", "c", "d", "e"].iter().map(|uid| leases.take(uid).unwrap()).collect();
        assert!(!later.contains(&first), "{later:?}");
        assert_eq!(leases.take("f").unwrap(), first);
        assert!(leases.take("g").unwrap_err().to_string().contains("all 5 addresses"));
        assert_eq!(leases.others(&["b".to_owned()].into()).len(), 4);
        assert!(Leases::open(&path, "10.9.0.0/24".parse().unwrap()).unwrap().book.held.is_empty());
    }
}
