//! The pods of one namespace, indexed by name and by each of their labels: a search for a few of thousands must not
//! scan all of them.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::core::{Expression, Selector, SelectorExt as _};

use super::PodView;

/// A pod in the order of names.
#[derive(Clone, Debug)]
struct Named(Arc<PodView>);

impl Borrow<str> for Named {
    fn borrow(&self) -> &str {
        &self.0.name
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Named {}

impl PartialOrd for Named {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Named {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.name.cmp(&other.0.name)
    }
}

#[derive(Debug, Default)]
pub(super) struct Namespace {
    pods: BTreeSet<Named>,
    /// By key and value of a label.
    labelled: HashMap<String, HashMap<String, BTreeSet<Named>>>,
}

impl Namespace {
    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Takes in a pod as it is now.
    pub(super) fn put(&mut self, view: PodView) {
        self.remove(&view.name);
        let pod = Named(Arc::new(view));
        for (key, value) in &pod.0.labels {
            let of = self.labelled.entry(key.clone()).or_default().entry(value.clone()).or_default();
            of.insert(pod.clone());
        }
        self.pods.insert(pod);
    }

    pub(super) fn remove(&mut self, name: &str) {
        let Some(pod) = self.pods.take(name) else { return };
        for (key, value) in &pod.0.labels {
            let Some(values) = self.labelled.get_mut(key) else { continue };
            if let Some(of) = values.get_mut(value) {
                of.remove(name);
                if of.is_empty() {
                    values.remove(value);
                }
            }
            if values.is_empty() {
                self.labelled.remove(key);
            }
        }
    }

    /// Those that any of the selectors takes, by name.
    pub(super) fn select(&self, selectors: &[Selector]) -> Vec<Arc<PodView>> {
        let taken = selectors.iter().flat_map(|selector| {
            let candidates = self.candidates(selector);
            candidates.iter().filter(|pod| selector.matches(&pod.0.labels))
        });
        let taken: BTreeSet<&Named> = taken.collect();
        taken.into_iter().map(|pod| Arc::clone(&pod.0)).collect()
    }

    /// All that a selector may take: the fewest that one of its demands leaves.
    fn candidates(&self, selector: &Selector) -> &BTreeSet<Named> {
        static NONE: BTreeSet<Named> = BTreeSet::new();
        let labelled = |key: &str, value: &str| {
            self.labelled.get(key).and_then(|values| values.get(value)).unwrap_or(&NONE)
        };
        let demanded = selector.clone().into_iter().filter_map(|expression| match expression {
            Expression::Equal(key, value) => Some(labelled(&key, &value)),
            Expression::In(key, values) => match (values.first(), values.len()) {
                (Some(value), 1) => Some(labelled(&key, value)),
                _ => None,
            },
            _ => None,
        });
        demanded.min_by_key(|pods| pods.len()).unwrap_or(&self.pods)
    }
}
