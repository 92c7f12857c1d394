//! What a file is that is no archive, by its first bytes, and what to do with it. Pure but for [`read_head`].

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;

use neonvm_disk::tree::Tree;

use crate::layer::is_header;

/// Bytes from the start of a file that all formats are recognised by.
pub(super) const HEAD: usize = 68 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// It is not.
    None,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
    /// The format of `xz`.
    Xz,
    /// The format of `bzip2`.
    Bzip2,
}

impl Packing {
    /// By the first six bytes.
    pub(crate) fn of(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Self::Bzip2,
            _ => Self::None,
        }
    }
}

/// A kind of file that is no archive of an image or of a root file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Name with its article, such as `a qcow2 disk`.
    pub(crate) name: &'static str,
    /// What to do, imperative.
    pub(crate) remedy: &'static str,
}

/// A format with the bytes that it is recognised by: where they are, and which.
type Magic = (usize, &'static [u8], Format);

const fn format(name: &'static str, remedy: &'static str) -> Format {
    Format { name, remedy }
}

const OF_DISK: &str = "take the root file system out of it, virt-tar-out -a FILE / root.tar (package guestfs-tools), and build from tar:root.tar";
const OF_DISK_IN_TAR: &str = "unpack it, take the root file system out of the disk, virt-tar-out -a DISK / root.tar (package guestfs-tools), and build from tar:root.tar";
const OF_MOUNT: &str = "mount it (mount -o loop,ro FILE root) and build from dir:root, or take the root file system out with virt-tar-out";
const OF_ARCHIVE: &str = "unpack it into a directory and build from dir:DIRECTORY";
const OF_PACKING: &str = "decompress it first; gzip, bzip2, xz and zstd are read as they are";
const OF_WEB: &str =
    "it is probably the error page of a server or proxy: open it with a pager, and download the file again";
const OF_PROGRAM: &str = "put it into a directory and build from dir:DIRECTORY with -- /PROGRAM";
const OF_ISO: &str = "an installation medium has no installed system: install it on a disk and take virt-tar-out of that, or build from a container image";
const OF_SQUASHFS: &str =
    "unpack it, unsquashfs -d root FILE (package squashfs-tools), and build from dir:root";
const OF_EROFS: &str =
    "unpack it, fsck.erofs --extract=root FILE (package erofs-utils), and build from dir:root";
const OF_CPIO: &str = "unpack it, cpio -idm -D root < FILE, and build from dir:root";
const OF_LFS: &str = "fetch the file that it stands for: git lfs pull";
const OF_EMPTY: &str = "the program that was to write it has probably failed: write it again";
const OF_ZEROS: &str =
    "the program that was to write it has probably failed, or it is an empty disk: write it again";
const OF_DOCUMENT: &str = "build from the directory of an image layout with oci:DIRECTORY, or from an archive (docker save, skopeo copy)";
const OF_DOCKERFILE: &str =
    "if it is a Dockerfile, build from dockerfile:FILE; a specification is given with -f";
const OF_KERNEL: &str =
    "kernels are separate from disks: neonctl kernel image; build from the root file system";
const OF_PACKAGE: &str =
    "install the package in an image, for example by `merge` of a specification, and build from that";
const OF_UNKNOWN: &str = "give a tar of a root file system (plain, gzip, bzip2, xz or zstd), an archive of docker save or of an OCI layout, or a directory";

/// A file of zeros, which is also a tar without entries.
pub(super) const ZEROS: &str = "full of zeros at its start";

const MAGICS: [Magic; 41] = [
    (0, b"QFI\xfb", format("a qcow2 disk", OF_DISK)),
    (0, b"QED\0", format("a QED disk", OF_DISK)),
    (0, b"KDMV", format("a VMDK disk", OF_DISK)),
    (0, b"COWD", format("a VMDK disk", OF_DISK)),
    (0, b"# Disk DescriptorFile", format("the description of a VMDK disk", OF_DISK)),
    (0, b"vhdxfile", format("a VHDX disk", OF_DISK)),
    (0, b"conectix", format("a VHD disk", OF_DISK)),
    (64, b"\x7f\x10\xda\xbe", format("a VDI disk", OF_DISK)),
    (0, b"WithoutFreeSpace", format("a Parallels disk", OF_DISK)),
    (0, b"WithouFreSpacExt", format("a Parallels disk", OF_DISK)),
    (0, b"\x3a\xff\x26\xed", format("a sparse image of Android", OF_DISK)),
    (0, b"LUKS\xba\xbe", format("an encrypted disk (LUKS)", OF_DISK)),
    (0, b"hsqs", format("a squashfs", OF_SQUASHFS)),
    (0, b"sqsh", format("a squashfs", OF_SQUASHFS)),
    (1024, b"\xe2\xe1\xf5\xe0", format("an EROFS", OF_EROFS)),
    (0, b"XFSB", format("an XFS file system", OF_MOUNT)),
    (65600, b"_BHRfS_M", format("a Btrfs file system", OF_MOUNT)),
    (0, b"\x45\x3d\xcd\x28", format("a cramfs", OF_MOUNT)),
    (32769, b"CD001", format("an ISO 9660 image", OF_ISO)),
    (0, b"PK\x03\x04", format("a zip archive", OF_ARCHIVE)),
    (0, b"PK\x05\x06", format("an empty zip archive", OF_ARCHIVE)),
    (0, b"7z\xbc\xaf\x27\x1c", format("a 7z archive", OF_ARCHIVE)),
    (0, b"Rar!\x1a\x07", format("a RAR archive", OF_ARCHIVE)),
    (0, b"MSWIM\0\0\0", format("a WIM archive of Windows", OF_ARCHIVE)),
    (0, b"070701", format("a cpio archive, such as an initramfs", OF_CPIO)),
    (0, b"070702", format("a cpio archive, such as an initramfs", OF_CPIO)),
    (0, b"070707", format("a cpio archive, such as an initramfs", OF_CPIO)),
    (0, b"\xc7\x71", format("a cpio archive, such as an initramfs", OF_CPIO)),
    (0, b"!<arch>\ndebian-binary", format("a Debian package", OF_PACKAGE)),
    (0, b"\xed\xab\xee\xdb", format("an RPM package", OF_PACKAGE)),
    (0, b"!<arch>\n", format("an ar archive", OF_ARCHIVE)),
    (0, b"\x04\x22\x4d\x18", format("compressed with lz4", OF_PACKING)),
    (0, b"\x02\x21\x4c\x18", format("compressed with lz4", OF_PACKING)),
    (0, b"LZIP\x01", format("compressed with lzip", OF_PACKING)),
    (0, b"\x5d\0\0", format("compressed with lzma", OF_PACKING)),
    (0, b"\x1f\x9d", format("compressed with compress", OF_PACKING)),
    (0, b"\x89LZO\0\r\n\x1a\n", format("compressed with lzop", OF_PACKING)),
    (32, b"SIF_MAGIC", format("an image of Apptainer", OF_SQUASHFS)),
    (514, b"HdrS", format("a Linux kernel", OF_KERNEL)),
    (0, b"\x7fELF", format("a program", OF_PROGRAM)),
    (0, b"version https://git-lfs.github.com/spec/", format("a pointer of Git LFS", OF_LFS)),
];

/// A file that begins with these bytes and has no tar header, or nothing but zeros where one is.
pub(crate) fn foreign(head: &[u8]) -> Format {
    if head.is_empty() {
        return format("an empty file", OF_EMPTY);
    }
    let at = |offset: usize, magic: &[u8]| head.get(offset..).is_some_and(|rest| rest.starts_with(magic));
    if let Some((.., found)) = MAGICS.iter().find(|(offset, magic, _)| at(*offset, magic)) {
        return *found;
    }
    if at(512, b"EFI PART") || at(4096, b"EFI PART") {
        return format("a disk with a partition table (GPT)", OF_DISK);
    }
    if at(1080, b"\x53\xef") {
        return format("an ext2, ext3 or ext4 file system", OF_MOUNT);
    }
    // Its mark ends the first page, whatever the page size of the system that made it.
    if [4096, 8192, 16384, 65536].into_iter().any(|page| at(page - 10, b"SWAPSPACE2")) {
        return format("a swap area", OF_UNKNOWN);
    }
    if at(510, b"\x55\xaa") {
        return if at(3, b"NTFS    ") || at(54, b"FAT") || at(82, b"FAT32") || at(3, b"EXFAT   ") {
            format("a file system of Windows", OF_MOUNT)
        } else {
            format("a disk with a partition table (MBR)", OF_DISK)
        };
    }
    if head.iter().all(|byte| *byte == 0) {
        return format(ZEROS, OF_ZEROS);
    }
    text(head).unwrap_or(format("of an unknown format", OF_UNKNOWN))
}

/// What a tree is that is no root file system.
pub(super) fn of_tree(tree: &Tree) -> Option<Format> {
    let names = tree.names(tree.root())?;
    if names.is_empty() {
        return Some(format("without any file", OF_EMPTY));
    }
    let ends = |ending: &str| names.keys().any(|name| name.to_ascii_lowercase().ends_with(ending.as_bytes()));
    let is_flat = names.values().all(|child| tree.names(*child).is_none());
    let disks = [".vmdk", ".vhd", ".vhdx", ".qcow2", ".raw", ".img"];
    (is_flat && (ends(".ovf") || disks.into_iter().any(ends)))
        .then(|| format("an archive of a VM or of its disk", OF_DISK_IN_TAR))
}

/// A text, by its first word.
fn text(head: &[u8]) -> Option<Format> {
    let start = head.get(..4096).unwrap_or(head);
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    let is_text = start.iter().all(|byte| *byte >= b' ' || b"\t\n\r\x0c".contains(byte));
    if start.is_empty() || !is_text {
        return None;
    }
    let begins =
        |word: &str| start.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word.as_bytes()));
    Some(if ["<!doctype html", "<html", "<head", "<body", "<!--"].into_iter().any(begins) {
        format("an HTML page", OF_WEB)
    } else if begins("<?xml") || begins("<") {
        format("an XML document", OF_WEB)
    } else if begins("{") || begins("[") {
        format("a JSON document", OF_DOCUMENT)
    } else if begins("FROM ") || begins("ARG ") || begins("# syntax=") {
        format("a text like a Dockerfile", OF_DOCKERFILE)
    } else if begins("#!") {
        format("a script", OF_PROGRAM)
    } else {
        format("a text", OF_DOCKERFILE)
    })
}

/// The format of an uncompressed file, unless it begins as a tar does.
pub(super) fn of_file(file: &File) -> io::Result<Option<Format>> {
    let head = read_head(file)?;
    Ok((!is_header(&head)).then(|| foreign(&head)))
}

/// The first bytes of a file; its position stays.
fn read_head(file: &File) -> io::Result<Vec<u8>> {
    struct At<'a>(&'a File, u64);
    impl io::Read for At<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.0.read_at(into, self.1)?;
            self.1 += count as u64;
            Ok(count)
        }
    }
    let mut head = Vec::new();
    At(file, 0).take(HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file with bytes at an offset.
    fn with(offset: usize, bytes: &[u8], length: usize) -> Vec<u8> {
        let mut file = vec![0; length.max(offset + bytes.len())];
        file[offset..offset + bytes.len()].copy_from_slice(bytes);
        file
    }

    #[test]
    fn every_magic_is_recognised() {
        for (offset, magic, expected) in MAGICS {
            let found = foreign(&with(offset, magic, HEAD));
            assert_eq!(found, expected, "{}", magic.escape_ascii());
        }
    }

    #[test]
    fn disks_and_texts_are_recognised() {
        let mbr = with(510, b"\x55\xaa", HEAD);
        let gpt = with(512, b"EFI PART", HEAD);
        let mut fat = mbr.clone();
        fat[82..87].copy_from_slice(b"FAT32");
        let large = with(4096, b"EFI PART", HEAD);
        for (head, expected) in [
            (mbr, "partition table (MBR)"),
            (gpt, "partition table (GPT)"),
            (large, "partition table (GPT)"),
            (fat, "file system of Windows"),
            (with(1024 + 0x38, b"\x53\xef", HEAD), "ext2, ext3 or ext4"),
            (with(8182, b"SWAPSPACE2", HEAD), "a swap area"),
            (vec![0; 10240], "full of zeros"),
            (Vec::new(), "an empty file"),
            (b"<!DOCTYPE html><html>".to_vec(), "an HTML page"),
            (b"\xef\xbb\xbf\n <HTML>".to_vec(), "an HTML page"),
            (b"<?xml version=\"1.0\"?><Error><Code>NoSuchKey".to_vec(), "an XML document"),
            (b"{\"errors\":[]}".to_vec(), "a JSON document"),
            (b"FROM debian\n".to_vec(), "like a Dockerfile"),
            (b"404 page not found\n".to_vec(), "a text"),
            (b"#!/bin/sh\n".to_vec(), "a script"),
            (vec![1; 600], "of an unknown format"),
        ] {
            assert!(foreign(&head).name.contains(expected), "{expected}: {:?}", foreign(&head));
        }
    }

    proptest! {
        #[test]
        fn any_file_has_a_format(head: Vec<u8>) {
            let found = foreign(&head);
            prop_assert!(!found.name.is_empty() && !found.remedy.is_empty());
            Packing::of(&head);
        }
    }
}
