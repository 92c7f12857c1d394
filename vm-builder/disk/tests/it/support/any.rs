//! Any tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use neonvm_disk::tree::{Content, Inode, Kind, Metadata, Origin, Piece, Time, Tree};
use proptest::prelude::*;

fn metadata() -> impl Strategy<Value = Metadata> {
    let attributes = proptest::collection::btree_map(
        "user\\.[a-z]{1,12}|security\\.[a-z]{1,9}",
        proptest::collection::vec(any::<u8>(), 0..200),
        0..4,
    );
    // The reader does not support times with negative low 32 bits; `debugfs` judges those in another test.
    let seconds = (0i64..4, 0i64..1 << 31).prop_map(|(high, low)| (high << 32) + low);
    (0u16..0o10000, any::<u32>(), any::<u32>(), seconds, 0u32..1_000_000_000, attributes).prop_map(
        |(mode, uid, gid, seconds, nanoseconds, attributes)| Metadata {
            mode,
            uid,
            gid,
            modified: Time { seconds, nanoseconds },
            xattrs: attributes.into_iter().map(|(name, value)| (name.into_bytes(), value)).collect(),
        },
    )
}

fn kind() -> impl Strategy<Value = Kind> {
    let piece = (0u64..20_000, 1u64..9000, 1u8..=255);
    let content = (proptest::collection::vec(piece, 0..12), 0u64..10_000).prop_map(|(pieces, tail)| {
        let mut content = Content::default();
        for (gap, length, byte) in pieces {
            let bytes: Arc<[u8]> = vec![byte; usize::try_from(length).unwrap()].into();
            content.pieces.push(Piece { at: content.length + gap, length, origin: Origin::Memory(bytes) });
            content.length += gap + length;
        }
        content.length += tail;
        Kind::File(content)
    });
    prop_oneof![
        4 => content,
        3 => Just(Kind::Directory(BTreeMap::new())),
        1 => proptest::collection::vec(1u8..=255, 1..200).prop_map(Kind::Symlink),
        1 => (0u32..4096, 0u32..1 << 20).prop_map(|(major, minor)| Kind::BlockDevice { major, minor }),
        1 => (0u32..4096, 0u32..1 << 20).prop_map(|(major, minor)| Kind::CharacterDevice { major, minor }),
        1 => Just(Kind::Fifo),
        1 => Just(Kind::Socket),
    ]
}

/// A tree: each inode goes into some directory that was there before it.
pub fn tree() -> impl Strategy<Value = Tree> {
    let name = prop_oneof![
        3 => proptest::collection::vec((1u8..=255).prop_filter("slash", |b| *b != b'/'), 1..20),
        1 => proptest::collection::vec(b'a'..=b'z', 200..=255),
    ];
    let entry = (any::<prop::sample::Index>(), name, metadata(), kind(), any::<u8>());
    proptest::collection::vec(entry, 0..80).prop_map(|entries| {
        let mut tree = Tree::new();
        let mut directories = vec![tree.root()];
        let mut last = None;
        for (place, name, metadata, kind, dice) in entries {
            let into = *place.get(&directories);
            if name == b"." || name == b".." || name == b"lost+found" || tree.child(into, &name).is_some() {
                continue;
            }
            if let Some(id) = last.filter(|_| dice < 40) {
                tree.link(into, &name, id);
                continue;
            }
            let is_directory = matches!(kind, Kind::Directory(_));
            let id = tree.add(Inode { metadata, kind }).unwrap();
            tree.link(into, &name, id);
            if is_directory {
                directories.push(id);
            } else {
                last = Some(id);
            }
        }
        tree
    })
}
