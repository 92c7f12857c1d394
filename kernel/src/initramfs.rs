//! A tiny initramfs for kernels whose drivers are modules: the guest program as `/init`, the modules, and two lists.
//!
//! ```text
//! /init                 the guest program; sees the marker and takes the part of an initramfs
//! /neonvm-initramfs     the marker
//! /modules/NAME.ko      the modules, uncompressed
//! /modules/order        file names to load before the root file system is mounted, one a line
//! /modules/later        file names to load while the workload starts
//! ```
//!
//! Format: cpio "newc" (Documentation/driver-api/early-userspace/buffer-format.rst of Linux). Times and inode numbers
//! are fixed, so the same input gives the same bytes.

use std::io::{self, Write};
use std::path::PathBuf;

use cpio::newc;

use crate::Error;
use crate::module::{self, plain_name};

/// File that marks an initramfs: the guest program checks for it.
pub const MARKER: &str = "neonvm-initramfs";

#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    pub guest: &'a [u8],
    /// Modules to load first, in order.
    pub first: &'a [PathBuf],
    /// Modules to load later, in order.
    pub later: &'a [PathBuf],
}

/// Writes an uncompressed archive.
pub fn write(content: &Content<'_>, out: impl Write) -> Result<(), Error> {
    let mut archive = Archive { out, inode: 1 };
    let failed = |source| Error::File { verb: "write", path: PathBuf::from("initramfs"), source };
    for directory in ["dev", "modules", "proc", "root", "run", "sys"] {
        archive.add(directory, 0o040_755, &[]).map_err(failed)?;
    }
    archive.device("dev/console", 5, 1).map_err(failed)?;
    archive.add(MARKER, 0o100_644, b"").map_err(failed)?;
    archive.add("init", 0o100_755, content.guest).map_err(failed)?;
    for path in content.first.iter().chain(content.later) {
        let bytes = module::read(path)?;
        archive.add(&format!("modules/{}", plain_name(path)), 0o100_644, &bytes).map_err(failed)?;
    }
    archive.add("modules/order", 0o100_644, list(content.first).as_bytes()).map_err(failed)?;
    archive.add("modules/later", 0o100_644, list(content.later).as_bytes()).map_err(failed)?;
    newc::trailer(archive.out).map(|_| ()).map_err(failed)
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| plain_name(path) + "\n").collect()
}

struct Archive<W> {
    out: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    fn entry(&mut self, name: &str, mode: u32) -> newc::Builder {
        let inode = self.inode;
        self.inode += 1;
        newc::Builder::new(name).ino(inode).mode(mode).nlink(1)
    }

    fn add(&mut self, name: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
        let size = u32::try_from(bytes.len()).map_err(|_| io::Error::other("a file is larger than 4 GiB"))?;
        let mut writer = self.entry(name, mode).write(&mut self.out, size);
        writer.write_all(bytes)?;
        writer.finish().map(|_| ())
    }

    /// The kernel opens `/dev/console` before `/init` can mount anything.
    fn device(&mut self, name: &str, major: u32, minor: u32) -> io::Result<()> {
        let entry = self.entry(name, 0o020_600).rdev_major(major).rdev_minor(minor);
        entry.write(&mut self.out, 0).finish().map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::{Packing, pack};

    #[test]
    fn the_archive_holds_everything_and_is_the_same_twice() {
        let directory = tempfile::tempdir().unwrap();
        let module = directory.path().join("virtio.ko.xz");
        std::fs::write(&module, pack(Packing::Xz, b"module")).unwrap();
        let (first, later) = (vec![module.clone()], vec![]);
        let content = Content { guest: b"program", first: &first, later: &later };
        let make = || {
            let mut bytes = Vec::new();
            write(&content, &mut bytes).unwrap();
            bytes
        };
        let bytes = make();
        assert_eq!(bytes, make());
        let mut seen = Vec::new();
        let mut rest = bytes.as_slice();
        loop {
            let mut reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let mut text = String::new();
            io::Read::read_to_string(&mut reader, &mut text).unwrap();
            seen.push((reader.entry().name().to_owned(), reader.entry().mode(), text));
            rest = reader.finish().unwrap();
        }
        let find = |name: &str| seen.iter().find(|(seen, ..)| seen == name).unwrap();
        assert_eq!(find("init"), &("init".into(), 0o100_755, "program".into()));
        assert_eq!(find("modules/order").2, "virtio.ko\n");
        assert_eq!(find("modules/virtio.ko").2, "module");
        assert_eq!(find("dev/console").1, 0o020_600);
    }

    #[test]
    fn a_module_that_cannot_be_read_is_named() {
        let first = [PathBuf::from("/nowhere/x.ko")];
        let error = write(&Content { guest: b"", first: &first, later: &[] }, io::sink()).unwrap_err();
        assert_eq!(error.to_string(), "cannot read /nowhere/x.ko");
    }
}
