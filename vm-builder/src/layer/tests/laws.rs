//! Laws: applying layers is what a map of paths does, and no bytes make it panic.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::layer::writer::Writer;

#[derive(Clone, Debug)]
enum Change {
    File(String, u8),
    Directory(String, u64),
    Hide(String),
    Opaque(String),
}

/// A node of the model: layer in which it was last described, and what it is.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    File(u8),
    Directory(u64),
}

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec("[abc]", 1..4).prop_map(|parts| parts.join("/"))
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (name(), any::<u8>()).prop_map(|(path, byte)| Change::File(path, byte)),
        3 => (name(), prop::sample::select(vec![0o700, 0o755, 0o1777])).prop_map(|(path, mode)| Change::Directory(path, mode)),
        1 => name().prop_map(Change::Hide),
        1 => name().prop_map(Change::Opaque),
    ]
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

/// A layer as a set of paths: later changes win; a file takes what is below it away, and nothing is put below files.
fn settled(changes: &[Change]) -> Vec<Change> {
    let mut kept: Vec<Change> = Vec::new();
    for change in changes {
        let (Change::File(path, _) | Change::Directory(path, _) | Change::Hide(path) | Change::Opaque(path)) =
            change;
        let is_file = |other: &Change, path: &str| matches!(other, Change::File(at, _) if below(path, at));
        if kept.iter().any(|other| is_file(other, path)) {
            continue;
        }
        if let Change::File(at, _) = change {
            kept.retain(|other| match other {
                Change::File(path, _)
                | Change::Directory(path, _)
                | Change::Hide(path)
                | Change::Opaque(path) => !below(path, at) && path != at,
            });
        } else if let Change::Opaque(at) = change
            && kept.iter().any(|other| matches!(other, Change::File(path, _) if path == at))
        {
            continue;
        } else if let Change::Directory(at, _) = change {
            kept.retain(
                |other| !matches!(other, Change::File(path, _) | Change::Directory(path, _) if path == at),
            );
        }
        kept.push(change.clone());
    }
    kept
}

/// What is visible after a layer: first what it hides, then what it adds.
fn model(lower: &BTreeMap<String, Node>, layer: &[Change]) -> Option<BTreeMap<String, Node>> {
    let mut map = lower.clone();
    for change in layer {
        match change {
            // A marker below a file of a lower layer is an entry below a file.
            Change::Hide(path) | Change::Opaque(path) if is_below_file(lower, path) => return None,
            Change::Opaque(path) if lower.get(path).is_some_and(|node| matches!(node, Node::File(_))) => {
                return None;
            }
            Change::Hide(path) => map.retain(|at, _| at != path && !below(at, path)),
            Change::Opaque(path) => map.retain(|at, _| !below(at, path)),
            _ => {}
        }
    }
    for change in layer {
        let (Change::File(path, _) | Change::Directory(path, _)) = change else { continue };
        let mut at = parent(path);
        while !at.is_empty() {
            match map.get(at) {
                Some(Node::Directory(_)) => {}
                Some(Node::File(_)) => return None,
                None => {
                    map.insert(at.to_owned(), Node::Directory(0o755));
                }
            }
            at = parent(at);
        }
        match change {
            Change::File(_, byte) => {
                map.retain(|at, _| !below(at, path));
                map.insert(path.clone(), Node::File(*byte));
            }
            Change::Directory(_, mode) => {
                map.insert(path.clone(), Node::Directory(*mode));
            }
            _ => {}
        }
    }
    Some(map)
}

fn is_below_file(map: &BTreeMap<String, Node>, path: &str) -> bool {
    map.iter().any(|(at, node)| matches!(node, Node::File(_)) && below(path, at))
}

fn written(layer: &[Change]) -> Vec<u8> {
    let marker = |path: &str| {
        let name = path.rsplit('/').next().unwrap();
        format!("{}/.wh.{name}", parent(path))
    };
    let writer = layer.iter().fold(Writer::default(), |writer, change| match change {
        Change::File(path, byte) => writer.file(path, &[*byte]),
        Change::Directory(path, mode) => writer.directory(path, *mode),
        Change::Hide(path) => writer.file(&marker(path), b""),
        Change::Opaque(path) => writer.file(&format!("{path}/.wh..wh..opq"), b""),
    });
    writer.end()
}

fn shown(tree: &Tree, layers: &[Vec<u8>]) -> BTreeMap<String, Node> {
    let mut map = BTreeMap::new();
    let mut ahead = vec![(String::new(), tree.root())];
    while let Some((path, id)) = ahead.pop() {
        let inode = tree.get(id).unwrap();
        let node = match &inode.kind {
            Kind::Directory(names) => {
                for (name, child) in names {
                    let name = String::from_utf8(name.clone()).unwrap();
                    let path = if path.is_empty() { name } else { format!("{path}/{name}") };
                    ahead.push((path, *child));
                }
                Node::Directory(u64::from(inode.metadata.mode))
            }
            Kind::File(_) => Node::File(content(tree, id, layers)[0]),
            other => panic!("{other:?}"),
        };
        if !path.is_empty() {
            map.insert(path, node);
        }
    }
    map
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn layers_are_maps_of_paths(layers in prop::collection::vec(prop::collection::vec(change(), 0..8), 1..5), order in any::<u64>()) {
        let mut map = BTreeMap::new();
        let mut archives = Vec::new();
        for (index, changes) in layers.iter().enumerate() {
            let mut layer = settled(changes);
            let Some(next) = model(&map, &layer) else { break };
            // Markers may stand anywhere in the layer; the rest stays in order, since the last of a name wins.
            let turn = (order >> index) as usize;
            let (mut markers, rest): (Vec<_>, Vec<_>) = layer.into_iter().partition(|change| matches!(change, Change::Hide(_) | Change::Opaque(_)));
            let at = if rest.is_empty() { 0 } else { turn % (rest.len() + 1) };
            layer = rest;
            for marker in markers.drain(..) {
                layer.insert(at.min(layer.len()), marker);
            }
            // A marker below a name that is not a directory at that moment is an entry below a file.
            if applied(&[archives.clone(), vec![written(&layer)]].concat()).is_err() {
                break;
            }
            archives.push(written(&layer));
            map = next;
        }
        let tree = applied(&archives).unwrap();
        prop_assert_eq!(shown(&tree, &archives), map);
    }

    #[test]
    fn damaged_archives_never_panic(
        changes in prop::collection::vec(change(), 0..8),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        kinds in prop::collection::vec(prop::sample::select(b"01234567LKxgSDV".to_vec()), 8),
    ) {
        let mut bytes = written(&changes);
        for (index, byte) in damage {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        // With right checksums, so that the damage is not noticed at once.
        for (number, block) in bytes.chunks_exact_mut(512).enumerate() {
            let block: &mut [u8; 512] = block.try_into().unwrap();
            if block[257..262] == *b"ustar" {
                if number % 3 == 0 {
                    block[156] = kinds[number % kinds.len()];
                }
                crate::layer::writer::checksum(block);
            }
        }
        let _ = applied(&[bytes]);
    }
}
