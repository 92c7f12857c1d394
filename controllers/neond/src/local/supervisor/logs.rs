//! Log files of services, of bounded size.

use std::io;
use std::path::{Path, PathBuf};

use neonvm_kit::private;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;

/// Size at which a log is renamed.
const LIMIT: u64 = 10 << 20;

/// A log that is being written.
pub(super) struct Log {
    path: PathBuf,
    file: tokio::fs::File,
    length: u64,
}

fn open(path: &Path) -> io::Result<(tokio::fs::File, u64)> {
    let file = private::options().append(true).create(true).open(path)?;
    let length = file.metadata()?.len();
    Ok((tokio::fs::File::from_std(file), length))
}

impl Log {
    /// Opens a log; makes its directory.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            private::directory(directory)?;
        }
        let (file, length) = open(path)?;
        Ok(Self { path: path.to_path_buf(), file, length })
    }

    /// Copies until all writers have closed the pipe. A disk that is full costs lines, never the service.
    pub(super) async fn copy(mut self, mut from: pipe::Receiver) {
        let mut buffer = vec![0; 16 << 10];
        let mut is_failing = false;
        loop {
            let count = match from.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(count) => count,
            };
            let bytes = buffer.get(..count).unwrap_or_default();
            let written = self.write(bytes).await;
            if let Err(error) = &written
                && !is_failing
            {
                tracing::error!(%error, path = %self.path.display(), "cannot write a log");
            }
            is_failing = written.is_err();
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.length > 0 && self.length + bytes.len() as u64 > LIMIT {
            self.rotate(bytes).await?;
        } else {
            self.file.write_all(bytes).await?;
            self.length += bytes.len() as u64;
        }
        self.file.flush().await
    }

    /// Finishes the line that is being written, renames the file and starts a new one.
    async fn rotate(&mut self, bytes: &[u8]) -> io::Result<()> {
        let line = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let (head, tail) = bytes.split_at(line);
        self.file.write_all(head).await?;
        self.file.flush().await?;
        let mut aside = self.path.clone().into_os_string();
        aside.push(".1");
        std::fs::rename(&self.path, &aside)?;
        (self.file, self.length) = open(&self.path)?;
        self.file.write_all(tail).await?;
        self.length += tail.len() as u64;
        Ok(())
    }
}
