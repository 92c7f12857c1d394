use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::default::apply_defaults;
use super::super::tests::arbitrary_json;
use super::super::validate::{Subject, custom};
use super::super::{Rule, SchemaRef, parse};
use super::judge;

fn laws() -> SchemaRef {
    parse::custom(&json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "min": {"type": "integer"},
                    "max": {"type": "integer"},
                    "name": {"type": "string", "maxLength": 20,
                        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "name is immutable"}]},
                    "grow": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]},
                    "even": {"type": "integer", "x-kubernetes-validations": [{"rule": "self % 2 == 0",
                        "messageExpression": "self > 10 ? \"odd and large\" : \"odd and small\"",
                        "reason": "FieldValueForbidden"}]},
                    "list": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 10},
                        "x-kubernetes-validations": [
                            {"rule": "self.all(x, x.startsWith('a'))", "message": "items begin with a"}]},
                    "opt": {"type": "string", "maxLength": 5},
                    "q": {"type": "string", "maxLength": 20, "x-kubernetes-validations": [{
                        "rule": "isQuantity(self) && quantity(self).isGreaterThan(quantity('1Gi'))",
                        "message": "more than 1Gi"}]}
                },
                "x-kubernetes-validations": [
                    {"rule": "self.min <= self.max", "message": "min must not exceed max",
                        "reason": "FieldValueInvalid"},
                    {"rule": "!has(oldSelf.opt) || has(self.opt)", "message": "opt is needed once set"},
                    {"rule": "!has(self.opt) || self.opt != 'max'", "message": "not max", "fieldPath": ".opt",
                        "reason": "FieldValueDuplicate"}
                ],
                "required": ["min", "max"]
            },
            "status": {"type": "object", "properties": {"n": {"type": "integer"}}}
        },
        "x-kubernetes-validations": [
            {"rule": "!self.metadata.name.startsWith('x')", "message": "names must not begin with x"}]
    }))
    .unwrap()
}

#[allow(clippy::needless_pass_by_value)]
fn check(name: &str, spec: Value, old: Option<Value>) -> Vec<String> {
    let object = json!({"apiVersion": "x/v1", "kind": "Law", "metadata": {"name": name}, "spec": spec});
    let old =
        old.map(|old| json!({"apiVersion": "x/v1", "kind": "Law", "metadata": {"name": name}, "spec": old}));
    let found = custom(&laws(), Subject { object: &object, old: old.as_ref(), status_only: false });
    found.iter().map(|e| format!("{} {e}", e.reason.as_str())).collect()
}

#[test]
fn messages_as_recorded() {
    let none: [&str; 0] = [];
    assert_eq!(check("l", json!({"min": 1, "max": 2}), None), none);
    assert_eq!(
        check("l", json!({"min": 1, "max": 2, "even": 3}), None),
        ["FieldValueForbidden spec.even: Forbidden: odd and small"]
    );
    assert_eq!(
        check("l", json!({"min": 1, "max": 2, "even": 13}), None),
        ["FieldValueForbidden spec.even: Forbidden: odd and large"]
    );
    assert_eq!(
        check("xl", json!({"min": 1, "max": 2}), None),
        ["FieldValueInvalid <nil>: Invalid value: names must not begin with x"]
    );
    assert_eq!(
        check("l", json!({"min": 1, "max": 2, "q": "500Mi"}), None),
        [r#"FieldValueInvalid spec.q: Invalid value: "500Mi": more than 1Gi"#]
    );
    assert_eq!(
        check("l", json!({"min": "3", "max": 2}), None),
        [
            r#"FieldValueTypeInvalid spec.min: Invalid value: "string": spec.min in body must be of type integer: "string""#,
            "FieldValueInvalid <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        ]
    );
    assert_eq!(
        check("l", json!({"min": 9, "max": 2}), None),
        ["FieldValueInvalid spec: Invalid value: min must not exceed max"]
    );
    assert_eq!(
        check("l", json!({"min": 1, "max": 2, "opt": "max"}), None),
        ["FieldValueDuplicate spec.opt: Duplicate value"]
    );
    assert_eq!(
        check("l", json!({"min": 1, "max": 2, "list": ["ab", "b"]}), None),
        ["FieldValueInvalid spec.list: Invalid value: items begin with a"]
    );
}

#[test]
fn transition_rules_need_an_old_value() {
    let none: [&str; 0] = [];
    let before = json!({"min": 1, "max": 2, "name": "n", "grow": 5, "opt": "a"});
    let with = |change: Value| {
        let mut spec = before.clone();
        for (key, value) in change.as_object().unwrap() {
            match value {
                Value::Null => spec.as_object_mut().unwrap().remove(key),
                value => spec.as_object_mut().unwrap().insert(key.clone(), value.clone()),
            };
        }
        check("l", spec, Some(before.clone()))
    };
    assert_eq!(check("l", before.clone(), None), none);
    assert_eq!(
        with(json!({"name": "m"})),
        [r#"FieldValueInvalid spec.name: Invalid value: "m": name is immutable"#]
    );
    assert_eq!(
        with(json!({"grow": 4})),
        ["FieldValueInvalid spec.grow: Invalid value: 4: failed rule: self >= oldSelf"]
    );
    assert_eq!(with(json!({"grow": 6})), none);
    assert_eq!(with(json!({"opt": null})), ["FieldValueInvalid spec: Invalid value: opt is needed once set"]);
    assert_eq!(with(json!({"name": null})), none);
    assert_eq!(check("l", before.clone(), Some(json!({"min": 1, "max": 2}))), none);
}

#[allow(clippy::needless_pass_by_value)]
fn one(node: &Value, rule: &str, value: Value, old: Option<Value>) -> Vec<String> {
    let mut node = node.clone();
    node["x-kubernetes-validations"] = json!([{"rule": rule}]);
    let schema = parse::custom(&json!({"type": "object", "properties": {"f": node}})).unwrap();
    let mut object = json!({"f": value});
    apply_defaults(&mut object, &schema);
    let old = old.map(|old| json!({"f": old}));
    super::check(&schema, &object, old.as_ref()).iter().map(ToString::to_string).collect()
}

#[test]
fn the_libraries_that_manifests_use() {
    let text = json!({"type": "string"});
    for (rule, value) in [
        ("self.matches('^[a-z]+$')", "abc"),
        ("self.startsWith('a') && self.endsWith('c') && self.contains('b') && size(self) == 3", "abc"),
        ("self in ['a', 'b'] && ['a'].exists_one(x, x == self)", "a"),
        ("[1, 2, 3].filter(x, x > 1).map(x, x * 2) == [4, 6]", "x"),
        ("quantity(self).compareTo(quantity('1024Mi')) == 0", "1Gi"),
    ] {
        assert_eq!(one(&text, rule, json!(value), None), Vec::<String>::new(), "{rule}");
    }
}

/// What the crate `kube-cel` 0.8 with its `cel` 0.13 fails at.
#[test]
fn rules_that_need_our_own_functions() {
    let text = json!({"type": "string"});
    for rule in [
        "type(self) == string",
        "size('é') == 1",
        "[0, 1].exists(x, 1 / x > 0)",
        "optional.of(1).optMap(x, x + 1).value() == 2",
        "quantity('1e30').isGreaterThan(quantity('1n'))",
        "quantity('9E').add(quantity('1n')).isGreaterThan(quantity('9E'))",
    ] {
        assert_eq!(one(&text, rule, json!("x"), None), Vec::<String>::new(), "{rule}");
    }
    assert_eq!(one(&text, "-(-9223372036854775807 - 1) > 0", json!("x"), None).len(), 1);
}

#[test]
fn values_are_typed_by_their_schema() {
    let none = Vec::<String>::new();
    assert_eq!(one(&json!({"type": "number"}), "self * 2.0 == 6.0", json!(3), None), none);
    assert_eq!(one(&json!({"type": "integer"}), "self / 2 == 1", json!(3), None), none);
    assert_eq!(
        one(
            &json!({"type": "string", "format": "duration"}),
            "self <= duration('24h')",
            json!("1h30m"),
            None
        ),
        none
    );
    assert_eq!(
        one(
            &json!({"type": "string", "format": "date-time"}),
            "self < timestamp('2030-01-01T00:00:00Z')",
            json!("2024-01-01T00:00:00Z"),
            None
        ),
        none
    );
    let either = json!({"x-kubernetes-int-or-string": true});
    let rule = "type(self) == int ? self <= 100 : self.endsWith('%')";
    assert_eq!(one(&either, rule, json!(5), None), none);
    assert_eq!(one(&either, rule, json!("5%"), None), none);
    let escaped =
        json!({"type": "object", "properties": {"a.b": {"type": "integer"}, "if": {"type": "integer"}}});
    assert_eq!(
        one(&escaped, "self.a__dot__b == 1 && self.__if__ == 2", json!({"a.b": 1, "if": 2}), None),
        none
    );
    let map = json!({"type": "object", "additionalProperties": {"type": "integer"}});
    assert_eq!(one(&map, "self.all(k, self[k] > 0) && 'a-b' in self", json!({"a-b": 1}), None), none);
}

#[test]
fn old_values_are_found_in_list_maps_only() {
    let item = json!({"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer",
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "immutable"}]}}});
    let check = |list: &Value| {
        let schema = parse::custom(&json!({"type": "object", "properties": {"l": list}})).unwrap();
        let old = json!({"l": [{"k": "a", "v": 1}, {"k": "b", "v": 2}]});
        let new = json!({"l": [{"k": "b", "v": 3}]});
        super::check(&schema, &new, Some(&old)).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        check(&json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": item})),
        ["l[0].v: Invalid value: 3: immutable"]
    );
    assert_eq!(check(&json!({"type": "array", "items": item})), Vec::<String>::new());
}

#[test]
fn an_optional_old_self_is_there_on_creation() {
    let schema = parse::custom(&json!({"type": "object", "properties": {"f": {"type": "integer",
        "x-kubernetes-validations": [{"rule": "oldSelf.hasValue() || self == 1", "optionalOldSelf": true,
            "message": "starts at one"}]}}}))
    .unwrap();
    let check =
        |value: i64, old: Option<Value>| super::check(&schema, &json!({"f": value}), old.as_ref()).len();
    assert_eq!(check(1, None), 0);
    assert_eq!(check(2, None), 1);
    assert_eq!(check(2, Some(json!({"f": 1}))), 0);
}

/// A rule at the root of an object sees all of it; long texts elsewhere do not make a comparison of two quantities expensive.
#[test]
fn long_texts_beside_a_quantity_cost_nothing() {
    let texts =
        json!({"type": "object", "properties": {"lines": {"type": "array", "items": {"type": "string"}}}});
    let rule = "quantity(string(self.f.max)).compareTo(quantity(string(oldSelf.f.max))) == 0";
    let schema = parse::custom(&json!({"type": "object",
        "x-kubernetes-validations": [{"rule": rule, "message": "changed"}],
        "properties": {"status": texts, "f": {"type": "object", "properties": {
            "max": {"x-kubernetes-int-or-string": true}}}}}))
    .unwrap();
    let lines: Vec<String> = (0..40).map(|_| "x".repeat(4000)).collect();
    let old = json!({"f": {"max": 1}, "status": {"lines": lines}});
    let mut new = old.clone();
    new["f"]["max"] = json!("1000m");
    assert_eq!(super::check(&schema, &new, Some(&old)).len(), 0);
    new["f"]["max"] = json!(2);
    assert_eq!(super::check(&schema, &new, Some(&old)).len(), 1);
}

#[test]
fn work_is_bounded() {
    let list = json!({"type": "array", "items": {"type": "integer"}});
    let items: Vec<u32> = (0..1000).collect();
    let rule = "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))";
    assert_eq!(
        one(&list, rule, json!(items), None),
        [
            "f: Invalid value: validation failed due to running out of cost budget, no further validation rules will be run"
        ]
    );
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    let nested = (0..12).fold("true".to_owned(), |inner, n| format!("{ten}.all(x{n}, {inner})"));
    assert_eq!(one(&list, &nested, json!([1]), None).len(), 1);
    assert_eq!(
        one(&list, "self.all(a, self.exists(b, b == a))", json!([1, 2, 3]), None),
        Vec::<String>::new()
    );
    for copying in [
        "self.map(x, self).size() > 0",
        "self.all(x, (self + self).size() > 0)",
        "self.all(x, [self] == [self])",
    ] {
        let items: Vec<u32> = (0..3000).collect();
        assert_eq!(one(&list, copying, json!(items), None).len(), 1, "{copying}");
    }
    let items: Vec<u32> = (0..20_000).collect();
    assert_eq!(one(&list, "self.map(x, x + 1).all(x, x > 0)", json!(items), None), Vec::<String>::new());
    for n in [10, 47, 49, 1000, 1500] {
        for rule in deep_rules(n) {
            let _ = one(&list, &rule, json!([1]), None);
        }
    }
}

fn deep_rules(n: usize) -> Vec<String> {
    vec![
        format!("{}true{}", "(".repeat(n), ")".repeat(n)),
        format!("{}true{}", "[".repeat(n), "]".repeat(n)),
        format!("{}true{}", "f(".repeat(n), ")".repeat(n)),
        format!("{}true{}", "!(".repeat(n), ")".repeat(n)),
        format!("{}true{}", "true ? ".repeat(n), " : b".repeat(n)),
        format!("{}true", "a ? b : ".repeat(n)),
        format!("{}true", "- ! ".repeat(5 * n)),
        format!("true{}", " && true".repeat(5 * n)),
        format!("0 <= 1{}", " + 1".repeat(10 * n)),
        format!("self{} == 1", ".a".repeat(10 * n)),
        format!("self{} == 1", "[0]".repeat(10 * n)),
        format!("self{} == 1", ".f()".repeat(5 * n)),
        format!("'{}", "\\'(".repeat(n)),
    ]
}

#[test]
fn unknown_fields_are_found_before_anything_runs() {
    let schema = laws();
    let spec = schema.child("spec").unwrap();
    let error = |rule: &str| judge(rule, &Rule::default(), spec, false, "bool").err().unwrap_or_default();
    assert_eq!(error("self.min > 1 && self.list.all(x, x.size() > 0)"), "");
    assert!(error("self.c > 1").contains("undefined field 'c'"));
    assert!(error("other > 1").contains("undeclared reference to 'other'"));
    assert!(error("self.list.all(x, x.y)").contains("does not support field selection"));
    assert!(error("self.min >").starts_with("compilation failed"));
    let root = |rule: &str| judge(rule, &Rule::default(), &schema, true, "bool").err().unwrap_or_default();
    assert_eq!(root("self.metadata.name == 'x' && self.kind == 'y'"), "");
    assert!(root("self.metadata.labels.x == 'x'").contains("undefined field 'labels'"));
}

#[test]
fn rules_have_a_type_and_a_price() {
    let texts = |max: Value| {
        let mut list = json!({"type": "array", "items": {"type": "string"}});
        if max.is_u64() {
            list["maxItems"] = max.clone();
            list["items"]["maxLength"] = max;
        }
        crate::schema::parse::fragment(&json!({"type": "object", "properties": {
            "n": {"type": "integer"}, "d": {"type": "number"}, "s": {"type": "string", "maxLength": 9},
            "b": {"type": "boolean"}, "l": list, "m": {"type": "object", "additionalProperties": {"type": "string"}}}}))
    };
    let schema = texts(json!(10));
    let fits = |rule: &str| judge(rule, &Rule::default(), &schema, false, "bool").is_ok();
    for good in [
        "self.n > 1.5 && self.d > self.n",
        "self.s.startsWith('a') ? self.b : !self.b",
        "self.l.exists(x, x == 'a') && self.l.filter(x, x > 'a').size() > 0",
        "self.m.all(k, self.m[k] != '') && 'a' in self.m",
        "self.l.map(x, x + 'b') == ['ab']",
        "quantity(self.s).isGreaterThan(quantity('1')) && has(self.n)",
        "type(self.n) == int && string(self.n) == '1'",
    ] {
        assert!(fits(good), "{good}");
    }
    for bad in [
        "self.n > 'x'",
        "self.n",
        "'a'",
        "self.n && true",
        "!self.s",
        "self.s + 1 == 'a'",
        "self.n == null",
        "self.n == 1u",
        "size(self.n) > 1",
        "self.n.matches('a')",
        "self.s.matches('(')",
        "self.s.endsWith('a', 'b')",
        "self.n in self.s",
        "self.l['a'] == 'b'",
        "self.l == [1]",
        "self.l.exists(x, x)",
        "self.n.all(x, x > 1)",
        "[1, 'a'].size() == 2",
        "self.d % 2.0 == 0.0",
        "foo(self.n)",
        "quantity(self.n) == quantity('1')",
    ] {
        assert!(!fits(bad), "{bad}");
    }
    let price =
        |schema: &super::Schema, rule: &str| judge(rule, &Rule::default(), schema, false, "bool").unwrap();
    let (nested, open) = ("self.l.all(x, self.l.all(y, x == y))", texts(Value::Null));
    assert!(price(&schema, nested) < super::MOST_OF_RULE);
    assert!(price(&open, nested) > super::MOST_OF_ALL);
    assert!(price(&open, "self.l.all(x, x.size() > 1)") < super::MOST_OF_RULE);
    assert!(price(&open, "self.l.all(x, x.contains('a'))") > super::MOST_OF_RULE);
}

proptest! {
    #[test]
    fn rules_never_panic(value in arbitrary_json(), old in arbitrary_json()) {
        let _ = super::check(&laws(), &value, Some(&old));
        let _ = one(&json!({"x-kubernetes-preserve-unknown-fields": true}),
            "self.spec.all(k, self.spec[k] == oldSelf.spec[k]) || size(self) > 2", value, Some(old));
    }

    #[test]
    fn compilation_never_panics(text in "[a-c0-9 ().,\\[\\]{}'\"?:!&|=<>+*/%-]{0,40}") {
        let rule = Rule { rule: text, ..Rule::default() };
        let _ = judge(&rule.rule, &rule, &laws(), true, "bool");
    }
}
