//! Bytes on their way, counted for progress and hashed.

use std::fs::File;
use std::io::{self, Read};

use super::Progress;
use crate::reference::Hasher;

/// A reader that reports its progress and hashes.
pub(super) struct Counted<'a, R> {
    pub(super) reader: R,
    pub(super) task: &'a str,
    pub(super) progress: &'a dyn Progress,
    pub(super) hasher: Hasher,
}

impl<'a> Counted<'a, File> {
    pub(super) fn new(file: File, task: &'a str, progress: &'a dyn Progress) -> Self {
        let length = file.metadata().ok().map(|metadata| metadata.len());
        progress.started(task, length);
        Self { reader: file, task, progress, hasher: Hasher::default() }
    }
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(into)?;
        self.hasher.update(into.get(..count).unwrap_or_default());
        self.progress.advanced(self.task, count as u64);
        Ok(count)
    }
}
