//! The newest values of a sequence.

/// The last `N` values, without allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring<T, const N: usize> {
    values: [T; N],
    /// Where the next value goes.
    next: usize,
    length: usize,
}

impl<T: Copy + Default, const N: usize> Default for Ring<T, N> {
    fn default() -> Self {
        Self { values: [T::default(); N], next: 0, length: 0 }
    }
}

impl<T: Copy, const N: usize> Ring<T, N> {
    /// Adds a value; the oldest makes room.
    pub fn push(&mut self, value: T) {
        if let Some(place) = self.values.get_mut(self.next) {
            *place = value;
            self.next = (self.next + 1) % N;
            self.length = (self.length + 1).min(N);
        }
    }

    /// How many values there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing was added yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The newest `count` values, or as many as there are, oldest first.
    pub fn newest(&self, count: usize) -> impl DoubleEndedIterator<Item = T> + ExactSizeIterator + '_ {
        let count = count.min(self.length);
        // The values may wrap around the end of the array.
        (0..count).map(move |number| self.at(count - 1 - number))
    }

    /// The newest value.
    #[must_use]
    pub fn last(&self) -> Option<T> {
        self.newest(1).next()
    }

    /// The value `age` places before the newest; callers keep `age` below the length.
    fn at(&self, age: usize) -> T {
        let place = (self.next + N - 1 - age.min(N - 1)) % N;
        // `place` is below `N` by the remainder; an `N` of 0 never has values.
        #[expect(clippy::indexing_slicing, reason = "a remainder of N")]
        self.values[place]
    }
}
