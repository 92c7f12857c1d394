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
