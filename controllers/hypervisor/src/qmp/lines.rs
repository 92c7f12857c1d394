//! Lines out of a stream that comes in pieces of any size.

use tokio::io::{AsyncRead, AsyncReadExt};

/// Most bytes of a line; QEMU's own limit for what it reads is 64 MiB, its longest answers so far are some 100 KiB.
pub const MOST_LINE_BYTES: usize = 4 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A line without its end.
    Line(Vec<u8>),
    /// The stream ended, or could not be read.
    End(String),
    /// A line is longer than [`MOST_LINE_BYTES`].
    TooLong,
}

#[derive(Debug)]
pub(super) struct Lines<R> {
    stream: R,
    /// What was read and not taken.
    held: Vec<u8>,
    /// Bytes of `held` that were searched already and hold no end of a line.
    searched: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(stream: R) -> Self {
        Self { stream, held: Vec::new(), searched: 0 }
    }

    /// The next line that is not empty. May be dropped at any time: nothing is lost.
    pub(super) async fn next(&mut self) -> Next {
        loop {
            let fresh = self.held.get(self.searched..).unwrap_or_default();
            if let Some(at) = fresh.iter().position(|byte| *byte == b'\n') {
                let end = self.searched + at;
                let rest = self.held.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.held, rest);
                self.searched = 0;
                line.truncate(end);
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return Next::Line(line);
            }
            self.searched = self.held.len();
            if self.held.len() > MOST_LINE_BYTES {
                return Next::TooLong;
            }
            self.held.reserve(4096);
            match self.stream.read_buf(&mut self.held).await {
                Ok(0) if self.held.is_empty() => return Next::End("QEMU closed it".to_owned()),
                Ok(0) => return Next::End("QEMU closed it in the middle of a message".to_owned()),
                Ok(_) => {}
                Err(error) => return Next::End(error.to_string()),
            }
        }
    }
}
