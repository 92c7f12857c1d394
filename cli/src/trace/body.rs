//! The body of a response on its way to the caller, with a copy for what is shown.

use bytes::Bytes;
use kube::client::Body;

use super::{Sink, shown_body};

/// Bytes of a body, or of a line of a watch, that are kept.
const KEPT: usize = 8 << 20;

/// A body that is shown when it has ended; of a watch, each line.
pub(super) struct TracedBody {
    pub(super) inner: Body,
    copy: Option<Copy>,
}

struct Copy {
    target: String,
    sink: Sink,
    is_watch: bool,
    kept: Vec<u8>,
    total: usize,
}

impl TracedBody {
    /// `shown`: path and query of the request, and where lines go.
    pub(super) fn new(inner: Body, shown: Option<(String, Sink)>) -> Self {
        let copy = shown.map(|(target, sink)| {
            let is_watch = target.contains("watch=true") || target.contains("watch=1");
            Copy { target, sink, is_watch, kept: Vec::new(), total: 0 }
        });
        Self { inner, copy }
    }

    /// Takes the next bytes.
    pub(super) fn take(&mut self, data: Option<&Bytes>) {
        let (Some(copy), Some(data)) = (&mut self.copy, data) else { return };
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            copy.total += piece.len();
            let room = KEPT.saturating_sub(copy.kept.len());
            copy.kept.extend_from_slice(piece.get(..room).unwrap_or(piece));
            if copy.is_watch && piece.ends_with(b"\n") {
                copy.show();
            }
        }
    }

    /// Shows what was not shown yet.
    pub(super) fn finish(&mut self) {
        if let Some(copy) = &mut self.copy {
            copy.show();
        }
    }
}

impl Copy {
    fn show(&mut self) {
        if let Some(text) = shown_body(&self.target, &self.kept, self.total) {
            (self.sink)(&format!("  received: {text}"));
        }
        self.kept.clear();
        self.total = 0;
    }
}

impl Drop for TracedBody {
    /// A caller may stop before the end.
    fn drop(&mut self) {
        self.finish();
    }
}
