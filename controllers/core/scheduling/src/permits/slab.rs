//! Values that are found by a small number.

/// Values by index; indices are used again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slab<T> {
    values: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { values: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> usize {
        if let Some(index) = self.free.pop()
            && let Some(place) = self.values.get_mut(index)
        {
            *place = Some(value);
            return index;
        }
        self.values.push(Some(value));
        self.values.len() - 1
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.values.get(index)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.values.get_mut(index)?.as_mut()
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        let value = self.values.get_mut(index)?.take()?;
        self.free.push(index);
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.values.iter().enumerate().filter_map(|(index, value)| Some((index, value.as_ref()?)))
    }
}
