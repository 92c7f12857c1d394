//! Decisions, events and ends of migrations, in order of time.

use std::collections::VecDeque;

use super::input::Entry;

const KEPT: usize = 300;

/// Entries, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream(VecDeque<Entry>);

impl Stream {
    /// Adds an entry at its time, or replaces the one with the same id.
    pub(crate) fn add(&mut self, entry: Entry) {
        if let Some(at) = self.0.iter().rposition(|known| known.id == entry.id) {
            if self.0.get(at) == Some(&entry) {
                return;
            }
            self.0.remove(at);
        }
        let at = self.0.partition_point(|known| known.at <= entry.at);
        self.0.insert(at, entry);
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// Entries, newest first.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().rev()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::input::Millis;
    use super::*;

    fn entry(at: Millis, id: &str) -> Entry {
        Entry { at, id: id.to_owned(), ..Entry::default() }
    }

    #[test]
    fn entries_are_in_order_and_unique() {
        let mut stream = Stream::default();
        for one in [entry(3, "c"), entry(1, "a"), entry(2, "b"), entry(4, "a"), entry(4, "a")] {
            stream.add(one);
        }
        assert_eq!(stream.newest().map(|entry| entry.id.as_str()).collect::<String>(), "acb");
        for at in 0..1000 {
            stream.add(entry(at, &at.to_string()));
        }
        assert_eq!((stream.len(), stream.newest().next().unwrap().at), (KEPT, 999));
    }
}
