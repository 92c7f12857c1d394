//! Which objects label and field selectors select. Most objects of a selective list do not match, such as the pod of one VM among
//! 20,000; they are passed over without being parsed.

use memchr::memmem::Finder;
use neonvm_types::selector::Requirement;

use crate::fields;
use crate::kinds::Kind;
use crate::options::ListOptions;
use crate::render;
use crate::selector::{FieldSelector, LabelSelector};
use crate::store::Stored;

/// The selectors of a list or watch.
#[derive(Debug)]
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// Texts that the stored JSON of every selected object contains. The JSON has no white space, see [`render::to_bytes`].
    in_labels: Vec<Finder<'static>>,
    in_fields: Vec<Finder<'static>>,
}

impl Selection {
    pub(crate) fn new(options: &ListOptions) -> Self {
        let in_labels = options.labels.requirements().iter().filter_map(of_label);
        let in_fields = options.fields.terms.iter().filter(|(.., equal)| *equal);
        let in_fields = in_fields.filter_map(|(_, value, _)| of_field(value));
        let finder = |text: String| Finder::new(text.as_bytes()).into_owned();
        Self {
            labels: options.labels.clone(),
            fields: options.fields.clone(),
            in_labels: in_labels.map(finder).collect(),
            in_fields: in_fields.map(finder).collect(),
        }
    }

    /// Whether it selects everything.
    pub(crate) fn is_all(&self) -> bool {
        self.labels.is_empty() && self.fields.terms.is_empty()
    }

    /// Whether an object is selected.
    pub(crate) fn includes(&self, kind: &Kind, stored: &Stored) -> bool {
        if !self.may_include(kind, stored) || !self.labels.matches_json(&stored.json) {
            return false;
        }
        if self.fields.terms.is_empty() {
            return true;
        }
        let value = render::value_in(kind, stored);
        self.fields.matches(|path| fields::value(kind, &value, path))
    }

    /// Fields of other versions, and defaults of definitions that have changed since, are not in the stored JSON; labels always are.
    fn may_include(&self, kind: &Kind, stored: &Stored) -> bool {
        let has = |finders: &[Finder<'_>]| finders.iter().all(|finder| finder.find(&stored.json).is_some());
        has(&self.in_labels) && (has(&self.in_fields) || !render::is_as_stored(kind, stored))
    }
}

fn of_label(requirement: &Requirement) -> Option<String> {
    let key = quoted(requirement.key());
    match requirement {
        Requirement::In(_, values) => match values.as_slice() {
            [value] => Some(format!("{key}:{}", quoted(value))),
            _ => Some(format!("{key}:")),
        },
        Requirement::Exists(_) | Requirement::Greater(..) | Requirement::Less(..) => Some(format!("{key}:")),
        Requirement::NotIn(..) | Requirement::Missing(_) => None,
    }
}

/// A field that equals a text is stored as that text. Absent fields, numbers and booleans have other forms, and some have defaults.
fn of_field(value: &str) -> Option<String> {
    let is_other = value.is_empty() || matches!(value, "true" | "false") || value.parse::<f64>().is_ok();
    (!is_other).then(|| quoted(value))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::kinds::Kinds;

    fn text() -> impl Strategy<Value = String> {
        prop_oneof!["[ab]{0,2}", Just("1".to_owned()), Just("true".to_owned()), Just("é\"\\\n".to_owned())]
    }

    fn requirement() -> impl Strategy<Value = Requirement> {
        ("[ab]{1,2}", prop::collection::vec(text(), 1..3), 0..6, 0..3_i64).prop_map(
            |(key, values, which, bound)| match which {
                0 => Requirement::NotIn(key, values),
                1 => Requirement::Exists(key),
                2 => Requirement::Missing(key),
                3 => Requirement::Greater(key, bound),
                4 => Requirement::Less(key, bound),
                _ => Requirement::In(key, values),
            },
        )
    }

    proptest! {
        /// What is passed over would not have been selected.
        #[test]
        fn an_object_is_selected_with_and_without_the_short_cut(
            labels in prop::collection::btree_map("[ab]{1,2}", text(), 0..3),
            name in text(),
            node in text(),
            network in any::<Option<bool>>(),
            requirements in prop::collection::vec(requirement(), 0..3),
            terms in prop::collection::vec(
                (prop::sample::select(vec!["metadata.name", "spec.nodeName", "spec.hostNetwork", "status.phase"]), text(), any::<bool>()),
                0..3,
            ),
        ) {
            let kinds = Kinds::builtin();
            let pods = kinds.resource("", "v1", "pods").unwrap();
            let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": labels },
                "spec": { "nodeName": node, "hostNetwork": network } });
            let stored = Stored { revision: 1, json: render::to_bytes(&pod) };
            let terms = terms.into_iter().map(|(path, value, equal)| (path.to_owned(), value, equal)).collect();
            let (labels, fields) = (LabelSelector::of(requirements), FieldSelector { terms });
            let expected = labels.matches(&pod) && fields.matches(|path| fields::value(pods, &pod, path));
            let options = ListOptions { labels, fields, ..ListOptions::default() };
            prop_assert_eq!(Selection::new(&options).includes(pods, &stored), expected);
        }
    }

    #[test]
    fn others_are_passed_over_without_being_parsed() {
        let kinds = Kinds::builtin();
        let pods = kinds.resource("", "v1", "pods").unwrap();
        let pod = |name: &str, node: &str| Stored {
            revision: 1,
            json: render::to_bytes(
                &json!({ "metadata": { "labels": { "vm.neon.tech/name": name } }, "spec": { "nodeName": node } }),
            ),
        };
        let labels = LabelSelector::parse("vm.neon.tech/name=a").unwrap();
        let fields = FieldSelector::parse("spec.nodeName=n").unwrap();
        let selection = Selection::new(&ListOptions { labels, fields, ..ListOptions::default() });
        let parsed = |name, node| selection.may_include(pods, &pod(name, node));
        assert_eq!([parsed("a", "n"), parsed("ab", "n"), parsed("a", "o")], [true, false, false]);
    }
}
