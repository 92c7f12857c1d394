//! What the makers of images send: layers, disks, lists of packages, kernels and their packages, names.

use std::collections::BTreeMap;

use neonvm_builder::layer::{Applier, Archive, Whiteouts};
use neonvm_builder::reference::{Digest, Reference};
use neonvm_builder::source::{Limits, Platform, Source};
use neonvm_disk::files::FileSystem;
use neonvm_disk::image::Memory;
use neonvm_disk::qcow2;
use neonvm_disk::tree::{Content, Inode, InodeId, Kind, Metadata, NoSources, Origin, Piece, SourceId, Tree};
use neonvm_guest::config::{command_line, mount_script, shell_words, user::Accounts};
use neonvm_guest::device::superblock::Superblock;

use crate::{Target, split, text};

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "image-layer", from: "image", examples: &[include_bytes!("../examples/layer.tar")], run: layer },
    Target { name: "image-disk", from: "image", examples: &[b"QFI\xfb\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\x10\0\0"], run: disk },
    Target {
        name: "image-texts",
        from: "image",
        examples: &[
            b"::sysinit:/etc/init.d/rcS\n::respawn:/usr/sbin/crond -f\n",
            b"mount -t tmpfs tmpfs /run -o size=1m\n",
            b"root:x:0:0:root:/root:/bin/sh\npostgres:x:70:70::/var/lib/postgresql:/bin/sh\n",
            b"export A='b c' D=\"e\"\n",
        ],
        run: texts,
    },
    Target {
        name: "image-packages",
        from: "image",
        examples: &[
            b"Package: libc6\nStatus: install ok installed\nVersion: 2.36-9\nArchitecture: amd64\n\n",
            b"P:musl\nV:1.2.4-r2\nA:x86_64\n\n",
        ],
        run: packages,
    },
    Target {
        name: "image-reference",
        from: "image",
        examples: &[b"registry.example:5000/a/b:1@sha256:0000000000000000000000000000000000000000000000000000000000000000", b"linux/arm64/v8", b"oci:/x:1"],
        run: |bytes| {
            let text = text(bytes);
            let _ = text.parse::<Reference>();
            let _ = text.parse::<Digest>();
            let _ = text.parse::<Platform>();
            let _ = Source::parse(&text);
            let _ = neonvm_builder::size::parse(&text);
        },
    },
    Target {
        name: "image-specification",
        from: "author of an image",
        examples: &[b"user: postgres\ncommand: [\"postgres\"]\nenv: [A=b]\nservices: []\n"],
        run: |bytes| {
            let _ = neonvm_builder::spec::Spec::parse(&text(bytes), "image.yaml".as_ref());
        },
    },
    Target {
        name: "kernel",
        from: "mirror",
        examples: &[b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0", b"!<arch>\ndebian-binary   0           0     0     100644  4         `\n2.0\n"],
        run: |bytes| {
            let _ = neonvm_kernel::module::dependencies(bytes);
            let _ = neonvm_kernel::vmlinux::unpack(bytes);
            let _ = neonvm_kernel::vmlinux::has_pvh_entry(bytes);
        },
    },
];

fn layer(bytes: &[u8]) {
    let limits = Limits { entries: 1000, bytes: 1 << 20, metadata: 1 << 20, ..Limits::default() };
    let Ok(mut archive) = Archive::new("layer", std::io::Cursor::new(bytes)) else { return };
    let _ = Applier::new(limits).apply(&mut archive, SourceId(0), Whiteouts::Apply);
}

/// Whatever a disk may be: qcow2, ext4, swap space, ISO 9660.
fn disk(bytes: &[u8]) {
    let image = Memory::from(bytes.to_vec());
    let _ = Superblock::parse(bytes);
    if let Ok(reader) = qcow2::Reader::open(image.clone()) {
        let _ = reader.check();
    }
    if let Ok(files) = FileSystem::open(image) {
        let _ = files.read(b"/neonvm/build.json", 1 << 16);
    }
}

fn texts(bytes: &[u8]) {
    let (first, rest) = split(bytes);
    let (all, rest) = (text(bytes), text(rest).into_owned());
    let _ = neonvm_builder::inittab::services(&all);
    mount_script::parse(&all).for_each(drop);
    let _ = (shell_words::words(&all), shell_words::exports(&all));
    let _ = command_line::CommandLine::parse(&all);
    let _ = Accounts { passwd: rest.clone(), group: rest }.resolve(&first);
}

/// The same text as each of the lists that images have.
fn packages(bytes: &[u8]) {
    let mut tree = Tree::new();
    for path in ["etc/os-release", "var/lib/dpkg/status", "lib/apk/db/installed"] {
        let mut at = tree.root();
        let (directories, name) = path.rsplit_once('/').unwrap_or_default();
        for directory in directories.split('/') {
            let inode = Inode { metadata: Metadata::default(), kind: Kind::Directory(BTreeMap::new()) };
            at = tree.child(at, directory.as_bytes()).unwrap_or_else(|| add(&mut tree, at, directory, inode));
        }
        let length = u64::try_from(bytes.len()).unwrap_or_default();
        let piece = Piece { at: 0, length, origin: Origin::Memory(bytes.into()) };
        let content = Content { length, pieces: vec![piece] };
        add(&mut tree, at, name, Inode { metadata: Metadata::default(), kind: Kind::File(content) });
    }
    let _ = neonvm_builder::sbom::packages(&tree, &NoSources);
}

fn add(tree: &mut Tree, directory: InodeId, name: &str, inode: Inode) -> InodeId {
    let inode = tree.add(inode).unwrap_or_else(|| tree.root());
    tree.link(directory, name.as_bytes(), inode);
    inode
}
