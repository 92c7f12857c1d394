//! What `nft -j` prints: chains that forwarded packets pass, and whether they may be dropped there.

use std::collections::BTreeSet;

use serde_json::Value;

/// A base chain that forwarded packets pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BaseChain {
    /// `ip`, `ip6`, `inet` or `bridge`.
    pub(super) family: String,
    pub(super) table: String,
    pub(super) name: String,
    /// Packets that no rule decides about are dropped.
    pub(super) drops: bool,
}

fn objects<'a>(listing: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = listing.get("nftables").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(move |object| object.get(kind))
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The chains of hook forward in the answer to `list chains`.
pub(super) fn forward_chains(listing: &Value) -> Vec<BaseChain> {
    objects(listing, "chain")
        .filter(|chain| text(chain, "hook") == "forward" && text(chain, "type") == "filter")
        .filter(|chain| ["ip", "ip6", "inet", "bridge"].contains(&text(chain, "family")))
        .map(|chain| BaseChain {
            family: text(chain, "family").to_owned(),
            table: text(chain, "table").to_owned(),
            name: text(chain, "name").to_owned(),
            drops: text(chain, "policy") == "drop",
        })
        .collect()
}

/// Whether a rule that is reached from a chain drops packets, by the answer to `list table`. What cannot be judged may.
pub(super) fn may_drop(listing: &Value, chain: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![chain.to_owned()];
    while let Some(chain) = open.pop() {
        if !seen.insert(chain.clone()) {
            continue;
        }
        for rule in objects(listing, "rule").filter(|rule| text(rule, "chain") == chain) {
            if rule.get("expr").is_some_and(|expression| drops(expression, &mut open)) {
                return true;
            }
        }
    }
    false
}

/// Whether an expression has a verdict that drops; chains that it leads to are added to `further`.
fn drops(value: &Value, further: &mut Vec<String>) -> bool {
    match value {
        Value::Array(all) => all.iter().any(|value| drops(value, further)),
        Value::Object(fields) => fields.iter().any(|(key, value)| match key.as_str() {
            "drop" | "reject" => true,
            "jump" | "goto" => {
                further.push(text(value, "target").to_owned());
                false
            }
            // The elements of a named map are not in this listing.
            "vmap" if value.get("data").is_some_and(Value::is_string) => true,
            "xt" => matches!(text(value, "name"), "DROP" | "REJECT"),
            _ => drops(value, further),
        }),
        _ => false,
    }
}

/// Handles of the rules with a comment, in the answer to `-a list chain`.
pub(super) fn handles(listing: &Value, comment: &str) -> Vec<u64> {
    objects(listing, "rule")
        .filter(|rule| text(rule, "comment") == comment)
        .filter_map(|rule| rule.get("handle").and_then(Value::as_u64))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn rule(chain: &str, expression: impl Into<Value>) -> Value {
        let expression = expression.into();
        json!({ "rule": { "chain": chain, "expr": expression } })
    }

    #[test]
    fn chains_that_drop_are_found() {
        let chain = |family: &str, name: &str, hook: &str, policy: &str| {
            json!({ "chain": { "family": family, "table": "t",
            "name": name, "hook": hook, "type": "filter", "policy": policy } })
        };
        let listing = json!({ "nftables": [{ "metainfo": {} }, chain("ip", "a", "forward", "drop"), chain("ip", "b", "input", "drop"),
            chain("inet", "c", "forward", "accept"), chain("netdev", "d", "forward", "drop"), { "chain": { "name": "e" } }] });
        let found: Vec<_> = forward_chains(&listing).into_iter().map(|c| (c.name, c.drops)).collect();
        assert_eq!(found, [("a".to_owned(), true), ("c".to_owned(), false)]);
    }

    #[test]
    fn verdicts_are_followed_through_jumps() {
        let through = |last: Value| {
            let listing = json!({ "nftables": [
                rule("a", json!([{ "match": { "right": "drop" } }, { "jump": { "target": "b" } }])),
                rule("b", json!([{ "vmap": { "key": {}, "data": { "set": [["x", { "goto": { "target": "c" } }]] } } }])),
                rule("c", last), rule("c", json!([{ "jump": { "target": "a" } }])), rule("other", json!([{ "drop": null }])),
            ] });
            may_drop(&listing, "a")
        };
        assert!(!through(json!([{ "counter": { "packets": 1 } }, { "accept": null }])));
        assert!(through(json!([{ "drop": null }])));
        assert!(through(json!([{ "reject": { "type": "icmpx" } }])));
        assert!(through(json!([{ "xt": { "type": "target", "name": "REJECT" } }])));
        assert!(through(json!([{ "vmap": { "key": {}, "data": "@verdicts" } }])));
        assert!(!may_drop(&json!({}), "a"));
    }

    #[test]
    fn only_our_rules_are_counted() {
        let listing = json!({ "nftables": [{ "rule": { "handle": 4, "comment": "ours" } }, { "rule": { "handle": 5 } },
            { "rule": { "handle": 6, "comment": "theirs" } }] });
        assert_eq!(handles(&listing, "ours"), [4]);
    }

    proptest! {
        #[test]
        fn any_rules_are_read(jumps in proptest::collection::vec((0_u8..6, 0_u8..6), 0..20), drop in proptest::option::of(0_u8..6)) {
            let name = |number: u8| number.to_string();
            let rules = jumps.iter().map(|(from, to)| rule(&name(*from), json!([{ "jump": { "target": name(*to) } }])));
            let rules = rules.chain(drop.map(|at| rule(&name(at), json!([{ "drop": null }]))));
            let listing = json!({ "nftables": rules.collect::<Vec<_>>() });
            let mut reached = BTreeSet::from([0]);
            for _ in 0..6 {
                let more: Vec<u8> = jumps.iter().filter(|(from, _)| reached.contains(from)).map(|(_, to)| *to).collect();
                reached.extend(more);
            }
            prop_assert_eq!(may_drop(&listing, "0"), drop.is_some_and(|at| reached.contains(&at)));
        }
    }
}
