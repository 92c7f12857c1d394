//! Where built-in lists and maps merge, as the Kubernetes 1.36 API declares it with `x-kubernetes-list-type`,
//! `x-kubernetes-list-map-keys`, `x-kubernetes-map-type`, `x-kubernetes-patch-strategy` and `…-merge-key`.
//! `k8s-openapi` does not carry these in its schemas.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use super::{ListType, PatchStrategy};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Merge {
    pub(super) list: Option<ListType>,
    pub(super) map_atomic: bool,
    pub(super) patch: PatchStrategy,
}

const TABLE: &str = include_str!("merge.txt");

type Table = BTreeMap<String, BTreeMap<&'static str, Merge>>;

fn full(name: &str) -> String {
    if name.starts_with("io.k8s.") { name.to_owned() } else { format!("io.k8s.api.{name}") }
}

fn table() -> &'static Table {
    static PARSED: OnceLock<Table> = OnceLock::new();
    PARSED.get_or_init(|| {
        let mut table = Table::new();
        for (owner, field, merge) in TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(row) {
            table.entry(owner).or_default().insert(field, merge);
        }
        table
    })
}

fn row(line: &'static str) -> Option<(String, &'static str, Merge)> {
    let mut columns = line.split_whitespace();
    let (owner, field, apply, patch) = (columns.next()?, columns.next()?, columns.next()?, columns.next()?);
    let mut merge = Merge::default();
    match apply {
        "set" => merge.list = Some(ListType::Set),
        "atomic" => merge.map_atomic = true,
        _ => {
            if let Some(keys) = apply.strip_prefix("map:") {
                merge.list = Some(ListType::Map(keys.split(',').map(str::to_owned).collect()));
            }
        }
    }
    let strategy = patch.strip_suffix("+retain").unwrap_or(patch);
    merge.patch = PatchStrategy {
        merge: strategy.starts_with("merge"),
        retain_keys: patch.ends_with("+retain"),
        merge_key: strategy.strip_prefix("merge:").map(str::to_owned),
    };
    Some((full(owner), field, merge))
}

pub(super) fn lookup(owner: &str, field: &str) -> Option<&'static Merge> {
    table().get(owner)?.get(field)
}

pub(super) fn is_atomic_type(name: &str) -> bool {
    static NAMES: OnceLock<BTreeSet<String>> = OnceLock::new();
    let alone = || TABLE.lines().filter(|line| !line.contains(' ')).map(full).collect();
    NAMES.get_or_init(alone).contains(name)
}

#[cfg(test)]
pub(super) fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    table().iter().flat_map(|(owner, fields)| fields.keys().map(|field| (owner.as_str(), *field)))
}
