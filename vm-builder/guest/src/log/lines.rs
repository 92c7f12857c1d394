//! Lines and their bounded queue. Pure.

use std::collections::VecDeque;

/// Longest line kept whole, in bytes; a longer one is broken.
pub const LONGEST: usize = 64 << 10;
/// Bytes kept while no reader is connected, and beyond which nothing is read while a reader is slow.
pub const KEPT: usize = 256 << 10;

/// Cuts a stream into lines.
#[derive(Debug, Default)]
pub struct Splitter {
    partial: Vec<u8>,
}

impl Splitter {
    /// Takes bytes; each finished line, with its newline, goes to the queue.
    pub fn push(&mut self, bytes: &[u8], queue: &mut Queue, connected: bool) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mut rest = piece;
            while self.partial.len().saturating_add(rest.len()) > LONGEST {
                let room = LONGEST.saturating_sub(self.partial.len()).saturating_sub(1);
                let (head, tail) = rest.split_at_checked(room).unwrap_or((rest, &[]));
                self.partial.extend_from_slice(head);
                self.flush(queue, connected);
                rest = tail;
            }
            self.partial.extend_from_slice(rest);
            if self.partial.last() == Some(&b'\n') {
                queue.push(std::mem::take(&mut self.partial), connected);
            }
        }
    }

    /// Whether a line has begun and not ended.
    pub fn has_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Ends the line that has begun, if any.
    pub fn flush(&mut self, queue: &mut Queue, connected: bool) {
        if !self.partial.is_empty() {
            let mut line = std::mem::take(&mut self.partial);
            line.push(b'\n');
            queue.push(line, connected);
        }
    }
}

/// Lines that wait to be written.
#[derive(Debug, Default)]
pub struct Queue {
    lines: VecDeque<Vec<u8>>,
    /// Bytes of all lines, written ones of the first included.
    bytes: usize,
    /// Bytes of the first line that are written.
    written: usize,
    dropped: u64,
}

impl Queue {
    /// Adds a line. While no reader is connected the oldest lines are dropped for it, and counted.
    pub fn push(&mut self, line: Vec<u8>, connected: bool) {
        self.bytes = self.bytes.saturating_add(line.len());
        self.lines.push_back(line);
        if !connected {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        // A line that was begun is finished: half a line would spoil the next one.
        let first = usize::from(self.written > 0);
        while self.bytes > KEPT && self.lines.len() > first.saturating_add(1) {
            if let Some(line) = self.lines.remove(first) {
                self.bytes = self.bytes.saturating_sub(line.len());
                self.dropped = self.dropped.saturating_add(1);
            }
        }
    }

    /// Whether more may be read from the sources.
    pub fn has_room(&self, connected: bool) -> bool {
        !connected || self.bytes < KEPT
    }

    /// What to write next; empty: nothing. A notice of dropped lines comes first.
    pub fn head(&mut self) -> &[u8] {
        if self.dropped > 0 && self.written == 0 {
            let notice = format!("neonvm: {} lines dropped while no reader was connected\n", self.dropped);
            self.dropped = 0;
            self.bytes = self.bytes.saturating_add(notice.len());
            self.lines.push_front(notice.into_bytes());
        }
        self.lines.front().and_then(|line| line.get(self.written..)).unwrap_or_default()
    }

    /// So many bytes of [`Queue::head`] were written.
    pub fn advance(&mut self, count: usize) {
        self.written = self.written.saturating_add(count);
        if self.lines.front().is_some_and(|line| self.written >= line.len()) {
            let length = self.lines.pop_front().map_or(0, |line| line.len());
            self.bytes = self.bytes.saturating_sub(length);
            self.written = 0;
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.dropped == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain(queue: &mut Queue, step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !queue.is_empty() {
            let next = queue.head();
            let count = next.len().min(step.max(1));
            all.extend_from_slice(&next[..count]);
            queue.advance(count);
        }
        all
    }

    proptest! {
        #[test]
        fn connected_nothing_is_lost(
            chunks in proptest::collection::vec(proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..50), 0..30),
            step in 1_usize..20,
        ) {
            let (mut splitter, mut queue) = (Splitter::default(), Queue::default());
            for chunk in &chunks {
                splitter.push(chunk, &mut queue, true);
            }
            splitter.flush(&mut queue, true);
            let mut expected: Vec<u8> = chunks.concat();
            if expected.last().is_some_and(|last| *last != b'\n') {
                expected.push(b'\n');
            }
            prop_assert_eq!(drain(&mut queue, step), expected);
            prop_assert_eq!(queue.bytes, 0);
        }

        #[test]
        fn unconnected_the_newest_whole_lines_stay_and_the_rest_is_counted(
            lengths in proptest::collection::vec(1_usize..LONGEST, 0..40),
            begun in 0_usize..10,
        ) {
            let mut queue = Queue::default();
            for (number, length) in lengths.iter().enumerate() {
                let mut line = vec![b'a' + u8::try_from(number % 26).unwrap(); *length];
                line.push(b'\n');
                queue.push(line, false);
                if number == 0 && begun > 0 && begun < *length {
                    queue.advance(begun);
                }
                prop_assert!(queue.bytes <= KEPT + LONGEST);
            }
            let kept = u64::try_from(queue.lines.len()).unwrap();
            prop_assert_eq!(kept + queue.dropped, lengths.len() as u64);
            if let Some(last) = lengths.last() {
                prop_assert_eq!(queue.lines.back().unwrap().len(), last + 1);
            }
        }

        #[test]
        fn no_line_is_longer_than_the_longest(length in 0..LONGEST * 3) {
            let (mut splitter, mut queue) = (Splitter::default(), Queue::default());
            splitter.push(&vec![b'x'; length], &mut queue, true);
            splitter.flush(&mut queue, true);
            prop_assert!(queue.lines.iter().all(|line| line.len() <= LONGEST && line.ends_with(b"\n")));
            let sum: usize = queue.lines.iter().map(|line| line.len() - 1).sum();
            prop_assert_eq!(sum, length);
        }
    }

    #[test]
    fn a_slow_listener_holds_up_the_writer_and_an_absent_one_does_not() {
        let mut queue = Queue::default();
        queue.push(vec![b'\n'; KEPT], true);
        assert!(!queue.has_room(true) && queue.has_room(false));
    }

    #[test]
    fn a_notice_of_dropped_lines_comes_before_kept_lines() {
        let mut queue = Queue::default();
        for _ in 0..5 {
            let mut line = vec![b'x'; LONGEST - 1];
            line.push(b'\n');
            queue.push(line, false);
        }
        let text = String::from_utf8(drain(&mut queue, usize::MAX)).unwrap();
        assert!(text.starts_with("neonvm: 1 lines dropped"), "{}", &text[..60]);
    }
}
