//! What the authors of each namespace may request: labels of namespaces, watched, over the installation's policy.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use neonvm_api::policy::LABEL_PREFIX;
use neonvm_core_vm_lifecycle::Settings;

type Labels = BTreeMap<String, String>;

/// The labels about policy of each namespace that has some.
#[derive(Debug, Default)]
pub(crate) struct Policies(Mutex<HashMap<String, Labels>>);

impl Policies {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Labels>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn settings<'a>(&self, settings: &'a Settings, namespace: &str) -> Cow<'a, Settings> {
        match self.lock().get(namespace) {
            None => Cow::Borrowed(settings),
            Some(labels) => {
                let policy = settings.policy.in_namespace(labels);
                Cow::Owned(Settings { policy, ..settings.clone() })
            }
        }
    }

    /// Takes the labels of a namespace; whether those about policy changed.
    pub(crate) fn put(&self, namespace: &str, labels: Labels) -> bool {
        let own: Labels = labels.into_iter().filter(|(key, _)| key.starts_with(LABEL_PREFIX)).collect();
        let mut all = self.lock();
        let before = if own.is_empty() {
            all.remove(namespace)
        } else {
            all.insert(namespace.to_owned(), own.clone())
        };
        before.unwrap_or_default() != own
    }

    /// Removes all namespaces but these.
    pub(crate) fn retain(&self, namespaces: &[String]) {
        self.lock().retain(|name, _| namespaces.contains(name));
    }

    pub(crate) fn remove(&self, namespace: &str) {
        self.lock().remove(namespace);
    }
}

#[cfg(test)]
mod tests {
    use neonvm_api::Power;

    use super::*;

    #[test]
    fn labels_of_a_namespace_change_what_its_authors_may_ask_for() {
        let (policies, settings) = (Policies::default(), Settings::default());
        let label = |value: &str| Labels::from([(Power::InitScript.label(), value.to_owned())]);
        let allows =
            |namespace: &str| policies.settings(&settings, namespace).policy.allows(Power::InitScript);
        assert!(!policies.put("a", [("team".to_owned(), "x".to_owned())].into()), "no label about policy");
        assert!(policies.put("a", label("true")));
        assert!(!policies.put("a", label("true")), "nothing changed");
        assert!(allows("a") && !allows("b"));
        assert!(policies.put("a", label("false")));
        assert!(!allows("a"));
        assert!(policies.put("a", Labels::new()));
        assert!(!allows("a"));
    }
}
