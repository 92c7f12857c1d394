//! Copies of files out of images, where nodes cannot mount images: with holes where a file has only zeros, compared with what the
//! disk holds, and under their name only when they are whole.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{Advice, OFlags, fadvise};

/// Bytes that are read, compared and left out at a time.
const CHUNK: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Length of the file, in bytes.
    pub length: u64,
    /// Bytes that were written: all that are in chunks with other bytes than zero.
    pub written: u64,
}

/// Copies a regular file. The copy is readable by all users; the right to execute it stays as it is.
///
/// # Errors
/// If it cannot be read or written, is no regular file, or if the copy differs. Then there is none.
pub fn file(from: &Path, to: &Path) -> io::Result<Copied> {
    // A pipe would wait for its other end.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let mut source = OpenOptions::new().read(true).custom_flags(nonblocking).open(from)?;
    let metadata = source.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let partial = directory.join(format!(".{}.partial", std::process::id()));
    let done = write(&mut source, &partial, metadata.permissions().mode())
        .and_then(|copied| std::fs::rename(&partial, to).map(|()| copied));
    if done.is_err() {
        std::fs::remove_file(&partial).ok();
    }
    done
}

fn write(source: &mut File, to: &Path, mode: u32) -> io::Result<Copied> {
    let mut target = OpenOptions::new().read(true).write(true).create_new(true).open(to)?;
    let mut copied = Copied { length: 0, written: 0 };
    let mut buffer = vec![0; CHUNK];
    loop {
        let chunk = next(source, &mut buffer)?;
        if chunk.is_empty() {
            break;
        }
        let length = chunk.len() as u64;
        if chunk.iter().any(|byte| *byte != 0) {
            target.seek(SeekFrom::Start(copied.length))?;
            target.write_all(chunk)?;
            copied.written += length;
        }
        copied.length += length;
    }
    target.set_len(copied.length)?;
    target.set_permissions(Permissions::from_mode(mode & 0o755 | 0o444))?;
    target.sync_all()?;
    // What is compared is read from the disk then.
    fadvise(&target, 0, None, Advice::DontNeed)?;
    compare(source, &mut target)?;
    Ok(copied)
}

fn compare(source: &mut File, target: &mut File) -> io::Result<()> {
    source.rewind()?;
    target.rewind()?;
    let (mut ours, mut theirs) = (vec![0; CHUNK], vec![0; CHUNK]);
    loop {
        let (one, other) = (next(source, &mut ours)?, next(target, &mut theirs)?);
        if one != other {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the copy differs from the file"));
        }
        if one.is_empty() {
            return Ok(());
        }
    }
}

/// The next chunk; shorter only at the end of the file.
fn next<'a>(file: &mut File, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(buffer.get(..filled).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use proptest::prelude::*;

    use super::*;

    fn content(pieces: &[(bool, usize)]) -> Vec<u8> {
        pieces
            .iter()
            .flat_map(|&(zero, length)| std::iter::repeat_n(if zero { 0 } else { 7 }, length))
            .collect()
    }

    proptest! {
        #[test]
        fn a_copy_is_equal_whatever_the_file_holds(pieces in prop::collection::vec((any::<bool>(), 0..200_000usize), 0..6)) {
            let directory = tempfile::tempdir().unwrap();
            let (from, to) = (directory.path().join("from"), directory.path().join("to"));
            let bytes = content(&pieces);
            std::fs::write(&from, &bytes).unwrap();
            let copied = file(&from, &to).unwrap();
            prop_assert_eq!(copied.length, bytes.len() as u64);
            prop_assert!(copied.written <= copied.length);
            prop_assert!(std::fs::read(&to).unwrap() == bytes);
            prop_assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
        }
    }

    #[test]
    fn zeros_take_no_room() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        std::fs::write(&from, content(&[(false, CHUNK), (true, 64 * CHUNK), (false, 1)])).unwrap();
        let copied = file(&from, &to).unwrap();
        assert_eq!(copied, Copied { length: 65 * CHUNK as u64 + 1, written: CHUNK as u64 + 1 });
        assert!(std::fs::metadata(&to).unwrap().blocks() * 512 < 4 * CHUNK as u64);
    }

    #[test]
    fn modes_are_kept_and_all_users_may_read() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        for (mode, expected) in [(0o600, 0o644), (0o755, 0o755), (0o4777, 0o755)] {
            std::fs::write(&from, "x").unwrap();
            std::fs::set_permissions(&from, Permissions::from_mode(mode)).unwrap();
            file(&from, &to).unwrap();
            assert_eq!(std::fs::metadata(&to).unwrap().permissions().mode() & 0o7777, expected, "{mode:o}");
        }
    }

    #[test]
    fn what_is_no_file_or_has_no_room_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (pipe, to) = (directory.path().join("pipe"), directory.path().join("to"));
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        );
        made.unwrap();
        for from in [&pipe, &directory.path().join("missing"), &directory.path().to_owned()] {
            assert!(file(from, &to).is_err(), "{}", from.display());
        }
        std::fs::write(directory.path().join("from"), "x").unwrap();
        assert!(file(&directory.path().join("from"), Path::new("/proc/nowhere/to")).is_err());
        assert!(
            file(&directory.path().join("from"), directory.path()).is_err(),
            "a directory is not replaced"
        );
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
