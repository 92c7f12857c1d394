//! Takes from a tree the extended attributes that ext4 cannot store, unless access to the file depends on them.

use std::collections::BTreeMap;

use super::attributes::{Attributes, is_storable};
use super::error::Error;
use crate::bytes::index;
use crate::tree::{Bytes, Tree};

/// Extended attributes that were taken from a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Number of attributes, at least 1.
    pub attributes: u64,
    /// Number of files that had them, at least 1.
    pub files: u64,
    /// Names with how many files had each; invalid UTF-8 is replaced.
    pub names: BTreeMap<String, u64>,
    /// Path of the first such file in the order of the walk.
    pub example: String,
}

/// Takes attributes with names that ext4 cannot store, and the longest ones of a file that has more than about 4 KiB. `None`: all can
/// be stored.
///
/// # Errors
/// If access depends on one of them: `security.*` and access control lists, except a list of NFSv4 that names only the owner, the group
/// and everyone, which the permissions of the file express as well.
pub fn drop_unstorable(tree: &mut Tree) -> Result<Option<Dropped>, Error> {
    let mut dropped = Dropped::default();
    let mut seen = vec![false; tree.count()];
    let mut ahead = vec![(String::new(), tree.root())];
    while let Some((path, id)) = ahead.pop() {
        match seen.get_mut(index(u64::from(id.0))) {
            Some(seen @ false) => *seen = true,
            _ => continue,
        }
        for (name, child) in tree.names(id).into_iter().flatten().rev() {
            ahead.push((format!("{path}/{}", String::from_utf8_lossy(name)), *child));
        }
        let Some(inode) = tree.get_mut(id).filter(|inode| !inode.metadata.xattrs.is_empty()) else {
            continue;
        };
        let path = if path.is_empty() { "/".to_owned() } else { path };
        let names = reduce(&mut inode.metadata.xattrs, &|| path.clone())?;
        if names.is_empty() {
            continue;
        }
        dropped.files += 1;
        for name in names {
            dropped.attributes += 1;
            *dropped.names.entry(String::from_utf8_lossy(&name).into_owned()).or_default() += 1;
        }
        if dropped.example.is_empty() {
            dropped.example = path;
        }
    }
    Ok((dropped.attributes > 0).then_some(dropped))
}

/// Leaves what can be stored; returns the names of the others.
fn reduce(xattrs: &mut BTreeMap<Bytes, Bytes>, path: &dyn Fn() -> String) -> Result<Vec<Bytes>, Error> {
    let mut dropped = Vec::new();
    let unnamed: Vec<Bytes> = xattrs
        .iter()
        .filter(|(name, value)| !is_storable(name, value) && !decides_access(name, value))
        .map(|(name, _)| name.clone())
        .collect();
    for name in unnamed {
        xattrs.remove(&name);
        dropped.push(name);
    }
    loop {
        let error = match Attributes::new(xattrs, path) {
            Ok(_) => return Ok(dropped),
            Err(error @ Error::AttributesDoNotFit { .. }) => error,
            Err(error) => return Err(error),
        };
        let longest = xattrs
            .iter()
            .filter(|(name, value)| !decides_access(name, value))
            .max_by_key(|(name, value)| (name.len() + value.len(), *name))
            .map(|(name, _)| name.clone());
        let Some(name) = longest else { return Err(error) };
        xattrs.remove(&name);
        dropped.push(name);
    }
}

/// Whether who may do what with a file depends on an attribute.
fn decides_access(name: &[u8], value: &[u8]) -> bool {
    if name.starts_with(b"security.") {
        return true;
    }
    let Some(rest) = name.strip_prefix(b"system.") else { return false };
    if rest == b"nfs4_acl" {
        return names_others(value);
    }
    // Lists of POSIX, NFSv4 and CIFS, and security descriptors of Windows.
    let holds = |part: &[u8]| rest.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part));
    holds(b"acl") || holds(b"ntsd")
}

/// Whether an access control list of NFSv4 (RFC 7530, in XDR) names users or groups besides the owner, the group and everyone. A
/// server makes a list of these three for each file that has only permissions.
fn names_others(list: &[u8]) -> bool {
    fn word(rest: &mut &[u8]) -> Option<u32> {
        let (word, after) = rest.split_first_chunk::<4>()?;
        *rest = after;
        Some(u32::from_be_bytes(*word))
    }
    let mut rest = list;
    let mut of_three = || -> Option<()> {
        for _ in 0..word(&mut rest)? {
            let (_kind, _flags, _mask) = (word(&mut rest)?, word(&mut rest)?, word(&mut rest)?);
            let length = index(u64::from(word(&mut rest)?));
            let who =
                rest.get(..length).filter(|who| [&b"OWNER@"[..], b"GROUP@", b"EVERYONE@"].contains(who));
            who?;
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
        Some(())
    };
    of_three().is_none()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ext4::{FileSystem, Options};
    use crate::tree::{Content, Inode, Kind, Metadata, NoSources};

    fn attributes(all: &[(&[u8], Vec<u8>)]) -> BTreeMap<Bytes, Bytes> {
        all.iter().map(|(name, value)| (name.to_vec(), value.clone())).collect()
    }

    fn tree(xattrs: BTreeMap<Bytes, Bytes>) -> Tree {
        let mut tree = Tree::new();
        let metadata = Metadata { mode: 0o644, xattrs, ..Metadata::default() };
        let file = tree.add(Inode { metadata, kind: Kind::File(Content::default()) }).unwrap();
        tree.link(tree.root(), b"x", file);
        tree.link(tree.root(), b"y", file);
        tree
    }

    fn left(tree: &Tree) -> Vec<Bytes> {
        let inode = tree.get(tree.child(tree.root(), b"x").unwrap()).unwrap();
        inode.metadata.xattrs.keys().cloned().collect()
    }

    /// An access control list of NFSv4.
    fn nfs4(who: &[&str]) -> Vec<u8> {
        let mut list = u32::try_from(who.len()).unwrap().to_be_bytes().to_vec();
        for who in who {
            for word in [0, 0, 7, u32::try_from(who.len()).unwrap()] {
                list.extend(word.to_be_bytes());
            }
            list.extend(who.as_bytes());
            list.resize(list.len().next_multiple_of(4), 0);
        }
        list
    }

    #[test]
    fn what_ext4_cannot_store_is_counted_once_per_file() {
        let mut made = tree(attributes(&[
            (b"com.apple.provenance", vec![1; 11]),
            (b"user.kept", vec![]),
            (b"trusted.big", vec![2; 5000]),
            (b"system.nfs4_acl", nfs4(&["OWNER@", "GROUP@", "EVERYONE@"])),
            (b"", vec![]),
            (b"user.\0", vec![]),
            (b"os2.\xff", vec![]),
            (b"security.capability", vec![1; 20]),
        ]));
        let dropped = drop_unstorable(&mut made).unwrap().unwrap();
        assert_eq!((dropped.attributes, dropped.files, dropped.example.as_str()), (6, 1, "/x"));
        assert_eq!(dropped.names["com.apple.provenance"], 1);
        assert_eq!(left(&made), [&b"security.capability"[..], b"user.kept"]);
        assert_eq!(drop_unstorable(&mut made).unwrap(), None);
    }

    #[test]
    fn what_decides_access_is_never_dropped() {
        let list = [2, 0, 0, 0];
        for (name, value) in [
            (&b"security.capability"[..], vec![0; 5000]),
            (b"security.", vec![]),
            (b"security.\0", vec![]),
            (b"system.posix_acl_access", b"broken".to_vec()),
            (b"system.posix_acl_default", list.repeat(2000)),
            (b"system.nfs4_acl", nfs4(&["OWNER@", "joe@example.com"])),
            (b"system.nfs4_acl", nfs4(&["OWNER@"])[..9].to_vec()),
            (b"system.nfs4_dacl", vec![]),
            (b"system.richacl", vec![]),
            (b"system.cifs_acl", vec![]),
            (b"system.cifs_ntsd_full", vec![]),
        ] {
            let shown = name.escape_ascii().to_string();
            let all = attributes(&[(name, value), (b"user.a", vec![1; 3000])]);
            let error = drop_unstorable(&mut tree(all)).unwrap_err().to_string();
            assert!(error.starts_with("/x: extended attribute"), "{shown}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_left_can_be_stored(
            all in proptest::collection::btree_map(
                prop_oneof![
                    "(user|trusted|system|com|security)\\.[a-z]{0,9}".prop_map(String::into_bytes),
                    proptest::collection::vec(any::<u8>(), 0..300),
                ],
                prop_oneof![Just(Vec::new()), proptest::collection::vec(any::<u8>(), 0..3000)],
                0..6,
            ),
        ) {
            let mut made = tree(all.clone());
            let outcome = drop_unstorable(&mut made);
            let decides = all.iter().any(|(name, value)| decides_access(name, value));
            prop_assert!(outcome.is_ok() || decides, "{outcome:?}");
            if let Ok(dropped) = outcome {
                let dropped = dropped.map_or(0, |dropped| dropped.attributes);
                prop_assert_eq!(left(&made).len() as u64 + dropped, all.len() as u64);
                prop_assert!(FileSystem::plan(&made, &NoSources, &Options::default()).is_ok());
                let kept = left(&made);
                prop_assert!(all.iter().all(|(name, value)| !decides_access(name, value) || kept.contains(name)));
            }
        }

        #[test]
        fn any_list_of_nfs4_is_read(list: Vec<u8>) {
            names_others(&list);
        }
    }
}
