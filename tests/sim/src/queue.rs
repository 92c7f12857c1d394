//! What is going to happen, in order of time; at equal times in the order in which it was put in.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Microseconds since the start of the run.
pub(crate) type Time = u64;

/// One second.
pub(crate) const SECOND: Time = 1_000_000;
pub(crate) const MILLI: Time = 1_000;

#[derive(Debug)]
struct Entry<T> {
    at: Time,
    sequence: u64,
    event: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

#[derive(Debug)]
pub(crate) struct Queue<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    sequence: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }

    pub(crate) fn push(&mut self, at: Time, event: T) {
        self.sequence += 1;
        self.heap.push(Reverse(Entry { at, sequence: self.sequence, event }));
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, T)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }
}
