//! Standard output as a file of bounded size. The writer of the log bounds it: a check of its size from outside comes
//! late, and a guest that floods its console writes hundreds of megabytes meanwhile.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Bytes of a log file before it is renamed to `FILE.1`. Together they are bounded by twice as much, and a line.
const LIMIT: u64 = 10 << 20;

/// Standard output and standard error, appended to a file.
#[derive(Debug)]
pub struct Bounded {
    path: PathBuf,
    file: File,
    limit: u64,
    length: u64,
    /// Whether standard output and error are redirected to a new file; not in tests.
    is_standard: bool,
}

impl Bounded {
    /// Of this process, if its standard output is the file at this path; none otherwise, as for a pipe of a container runtime.
    #[must_use]
    pub fn standard(path: &Path) -> Option<Self> {
        let file = append(path).ok()?;
        let (own, out) = (file.metadata().ok()?, rustix::fs::fstat(rustix::stdio::stdout()).ok()?);
        let is_same = (own.dev(), own.ino()) == (out.st_dev, out.st_ino);
        let length = own.len();
        is_same.then(|| Self { path: path.to_path_buf(), file, limit: LIMIT, length, is_standard: true })
    }

    /// Renames the file and begins a new one, to which standard output and error are redirected.
    fn rotate(&mut self) -> io::Result<()> {
        let beside = |ending: &str| {
            let mut path = self.path.as_os_str().to_owned();
            path.push(ending);
            PathBuf::from(path)
        };
        let (aside, next) = (beside(".1"), beside(".new"));
        for path in [&aside, &next] {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        // There is a file with the log's name at every moment: readers find the next one when the old one loses it.
        std::fs::hard_link(&self.path, &aside)?;
        let file = append(&next)?;
        std::fs::rename(&next, &self.path)?;
        if self.is_standard {
            rustix::stdio::dup2_stdout(&file)?;
            rustix::stdio::dup2_stderr(&file)?;
        }
        (self.file, self.length) = (file, 0);
        Ok(())
    }

    /// Other parts of this process write to standard error.
    fn is_long(&self, more: usize) -> bool {
        let length = self.file.metadata().map_or(self.length, |metadata| metadata.len());
        length > 0 && length.saturating_add(more as u64) > self.limit
    }
}

fn append(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(path)
}

impl Write for Bounded {
    /// Takes whole lines.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_long(bytes.len())
            && let Err(error) = self.rotate()
        {
            // Rather no log than one without bounds.
            self.file.set_len(0)?;
            tracing::debug!(%error, "the log cannot be moved aside and is cut");
        }
        self.file.write_all(bytes)?;
        self.length = self.length.saturating_add(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_bounded_at_every_moment_and_lines_stay_whole() {
        let directory = tempfile::tempdir().unwrap();
        let (path, aside) = (directory.path().join("0.log"), directory.path().join("0.log.1"));
        let mut log = Bounded {
            file: append(&path).unwrap(),
            path: path.clone(),
            limit: 1000,
            length: 0,
            is_standard: false,
        };
        for number in 0..500 {
            log.write_all(format!("line {number}\n").as_bytes()).unwrap();
            let size = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
            assert!(size(&path) <= 1000 && size(&aside) <= 1000);
        }
        let kept = std::fs::read_to_string(&aside).unwrap() + &std::fs::read_to_string(&path).unwrap();
        let numbers: Vec<usize> =
            kept.lines().map(|line| line.strip_prefix("line ").unwrap().parse().unwrap()).collect();
        let first = numbers[0];
        assert_eq!(numbers, (first..500).collect::<Vec<_>>());
        // A line that is longer than the limit gets a separate file.
        log.write_all(&[b'x'; 5000]).unwrap();
        log.write_all(b"after\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "after\n");
    }

    #[test]
    fn what_is_no_file_of_ours_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Bounded::standard(&directory.path().join("other.log")).is_none());
    }
}
