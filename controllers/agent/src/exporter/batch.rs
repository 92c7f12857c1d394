//! Events in batches, in the order they came.

use std::collections::VecDeque;

/// An open batch, and closed ones that wait.
#[derive(Debug)]
pub(crate) struct Batches {
    most: usize,
    limit: usize,
    open: Vec<String>,
    closed: VecDeque<Vec<String>>,
    kept: usize,
    dropped: u64,
}

impl Batches {
    /// Batches of at most `most` events, of which about `limit` events are kept.
    pub(crate) fn new(most: usize, limit: usize) -> Self {
        // An open batch is not dropped from, so it must not hold more than that either.
        Self {
            most: most.clamp(1, limit.max(1)),
            limit,
            open: Vec::new(),
            closed: VecDeque::new(),
            kept: 0,
            dropped: 0,
        }
    }

    /// Takes an event; how many of the oldest were dropped for it.
    pub(crate) fn push(&mut self, event: String) -> u64 {
        let before = self.dropped;
        self.open.push(event);
        self.kept += 1;
        if self.open.len() >= self.most {
            self.close();
        }
        while self.kept > self.limit
            && let Some(oldest) = self.closed.pop_front()
        {
            self.kept -= oldest.len();
            self.dropped += oldest.len() as u64;
        }
        self.dropped - before
    }

    /// Events that were dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Closes the open batch, if there is anything in it.
    pub(crate) fn close(&mut self) {
        if !self.open.is_empty() {
            self.closed.push_back(std::mem::take(&mut self.open));
        }
    }

    /// Whether a closed batch waits.
    pub(crate) fn is_ready(&self) -> bool {
        !self.closed.is_empty()
    }

    /// The oldest closed batch.
    pub(crate) fn first(&self) -> Option<&[String]> {
        self.closed.front().map(Vec::as_slice)
    }

    /// The oldest closed batch was sent.
    pub(crate) fn sent(&mut self) {
        if let Some(batch) = self.closed.pop_front() {
            self.kept -= batch.len();
        }
    }

    /// Events that wait, in closed batches and in the open one.
    pub(crate) fn len(&self) -> usize {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(batches: &mut Batches, from: u32, to: u32) {
        for number in from..=to {
            let _ = batches.push(number.to_string());
        }
    }

    #[test]
    fn batches_of_three() {
        let mut batches = Batches::new(3, 100);
        push(&mut batches, 1, 2);
        assert!(!batches.is_ready());
        batches.close();
        assert_eq!(batches.first(), Some(&["1".to_owned(), "2".to_owned()][..]));
        push(&mut batches, 3, 8);
        batches.sent();
        assert_eq!(batches.first().map(<[_]>::len), Some(3));
        batches.sent();
        assert_eq!(batches.first().unwrap()[0], "6");
        batches.sent();
        batches.close();
        assert!(!batches.is_ready() && batches.len() == 0);
    }

    #[test]
    fn the_oldest_go_first_when_there_are_too_many() {
        let mut batches = Batches::new(10, 30);
        push(&mut batches, 1, 1000);
        assert!(batches.len() <= 30);
        assert_eq!(batches.first().unwrap()[0], "971");
        assert_eq!(batches.dropped(), 970);
    }
}
