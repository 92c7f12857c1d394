//! What corresponds in two values.

use std::collections::BTreeSet;

use crate::builtin::internal::Held;

/// Most pairs of items of two lists that are compared in search of equal ones.
const MOST_COMPARED: usize = 4096;

/// Two values that correspond; one of them is missing if it has no counterpart.
#[derive(Debug)]
pub(super) struct Node<'a> {
    pub(super) old: Option<&'a Held>,
    pub(super) new: Option<&'a Held>,
    /// Parts without parts of their own that are equal, and that are not.
    pub(super) same: usize,
    pub(super) different: usize,
    /// All parts.
    pub(super) parts: usize,
    /// The longest way down.
    pub(super) depth: usize,
    pub(super) below: Below<'a>,
}

#[derive(Debug)]
pub(super) enum Below<'a> {
    Nothing,
    /// What two pointers point at.
    Inner(Box<Node<'a>>),
    /// Fields by name, entries by key, or items.
    Records(Vec<(String, Node<'a>)>),
}

/// Matches two values.
pub(super) fn compare<'a>(old: Option<&'a Held>, new: Option<&'a Held>) -> Node<'a> {
    let mut node = Node { old, new, same: 0, different: 0, parts: 0, depth: 0, below: Below::Nothing };
    match (old, new) {
        (Some(Held::Pointer(old)), Some(Held::Pointer(new))) => {
            let inner = compare(Some(old), Some(new));
            node.take(&inner);
            node.below = Below::Inner(Box::new(inner));
        }
        (Some(Held::Struct(_, old)), Some(Held::Struct(_, new))) => {
            let fields = old.iter().zip(new);
            node.records(
                fields.map(|((name, old), (_, new))| ((*name).to_owned(), compare(Some(old), Some(new)))),
            );
        }
        (Some(Held::List(_, old)), Some(Held::List(_, new))) => {
            node.records(pairs(old, new).into_iter().map(|(old, new)| (String::new(), compare(old, new))));
        }
        (Some(Held::Map(_, old, _)), Some(Held::Map(_, new, _))) => {
            let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            node.records(keys.into_iter().map(|key| (key.clone(), compare(old.get(key), new.get(key)))));
        }
        (old, new) => {
            let same = old == new;
            (node.same, node.different) = (usize::from(same), usize::from(!same));
        }
    }
    node
}

impl<'a> Node<'a> {
    fn take(&mut self, child: &Node<'_>) {
        self.same += child.same;
        self.different += child.different;
        self.parts += child.parts + 1;
        self.depth = self.depth.max(child.depth + 1);
    }

    fn records(&mut self, records: impl Iterator<Item = (String, Node<'a>)>) {
        let records: Vec<_> = records.collect();
        for (_, child) in &records {
            self.take(child);
        }
        self.below = Below::Records(records);
    }

    /// Whether it is one part of one part and so on.
    pub(super) fn is_chain(&self) -> bool {
        self.parts == self.depth
    }

    fn is_similar(&self) -> bool {
        self.same + 1 >= self.different
    }
}

type Pair<'a> = (Option<&'a Held>, Option<&'a Held>);

/// The items of two lists that correspond: equal ones at both ends and between them, and others that are similar.
fn pairs<'a>(old: &'a [Held], new: &'a [Held]) -> Vec<Pair<'a>> {
    let head = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let rest = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(old, new)| old == new).count();
    let middle = |list: &'a [Held]| list.get(head..list.len() - tail).unwrap_or_default();
    let both = |(old, new): (&'a Held, &'a Held)| (Some(old), Some(new));
    let mut all: Vec<Pair<'a>> = old.iter().zip(new).take(head).map(both).collect();
    let (mut before, mut after) = (middle(old), middle(new));
    while let Some((first, second)) = nearest(before, after) {
        let (skipped, rest) = before.split_at(first);
        let (added, more) = after.split_at(second);
        unequal(skipped, added, &mut all);
        all.push((rest.first(), more.first()));
        (before, after) = (rest.get(1..).unwrap_or_default(), more.get(1..).unwrap_or_default());
    }
    unequal(before, after, &mut all);
    let ends = old.iter().skip(old.len() - tail).zip(new.iter().skip(new.len() - tail));
    all.extend(ends.map(both));
    all
}

/// Where the first equal items of two lists are, nearest to their beginnings. Not looked for in long lists.
fn nearest(old: &[Held], new: &[Held]) -> Option<(usize, usize)> {
    if old.len().saturating_mul(new.len()) > MOST_COMPARED {
        return None;
    }
    let places = (0..old.len() + new.len()).flat_map(|sum| {
        let mut places: Vec<(usize, usize)> = (0..=sum).map(|first| (first, sum - first)).collect();
        places.sort_by_key(|(first, second)| first.abs_diff(*second));
        places
    });
    places.into_iter().find(|(first, second)| {
        let (old, new) = (old.get(*first), new.get(*second));
        old.is_some() && old == new
    })
}

/// Items that differ: pairs that are similar, and the others of the longer list first.
fn unequal<'a>(mut before: &'a [Held], mut after: &'a [Held], all: &mut Vec<Pair<'a>>) {
    while let ([first, others @ ..], [next, more @ ..]) = (before, after) {
        if compare(Some(first), Some(next)).is_similar() {
            all.push((Some(first), Some(next)));
            (before, after) = (others, more);
        } else if before.len() >= after.len() {
            all.push((Some(first), None));
            before = others;
        } else {
            all.push((None, Some(next)));
            after = more;
        }
    }
    all.extend(before.iter().map(|old| (Some(old), None)));
    all.extend(after.iter().map(|new| (None, Some(new))));
}
