//! The kinds of a server, as data: built-in ones from a table, custom ones from definitions.

mod builtin;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use crate::crd::{CustomKind, CustomVersion, compare_versions};
use crate::schema::SchemaRef;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    All,
    /// `create` only: reviews and other questions.
    Create,
}

impl Verbs {
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::All => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            Self::Create => &["create"],
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    pub name: String,
    pub kind: String,
    pub group: Option<&'static str>,
    pub version: Option<&'static str>,
    pub verbs: &'static [&'static str],
}

#[derive(Clone)]
enum Source {
    Builtin(fn() -> SchemaRef, Arc<OnceLock<SchemaRef>>),
    Custom(SchemaRef),
}

#[derive(Clone)]
pub struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    pub verbs: Verbs,
    pub subresources: Vec<Subresource>,
    /// `group/plural` under which objects are kept.
    pub table: Arc<str>,
    pub storage: String,
    /// Whether `metadata.generation` counts changes of the desired state.
    pub has_generation: bool,
    /// Whether a PUT may create.
    pub create_on_update: bool,
    /// Whether a PUT must name the version it replaces.
    pub needs_version: bool,
    /// Whether a collection can be deleted as a whole.
    pub deletes_collection: bool,
    /// Extra field-selector paths.
    pub fields: Vec<String>,
    /// Revision of the definition behind a custom kind.
    pub since: u64,
    /// The definition's version behind a custom kind.
    pub custom: Option<Arc<CustomVersion>>,
    source: Source,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.api_version(), self.kind)
    }
}

impl Kind {
    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The schema, built at first use.
    pub fn schema(&self) -> &SchemaRef {
        match &self.source {
            Source::Builtin(make, cell) => cell.get_or_init(make),
            Source::Custom(schema) => schema,
        }
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    pub(crate) fn verb_names(&self) -> Vec<&'static str> {
        const CUSTOM: &[&str] =
            &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
        let names = if self.custom.is_some() { CUSTOM } else { self.verbs.names() };
        names.iter().copied().filter(|name| self.deletes_collection || *name != "deletecollection").collect()
    }

    /// An object that has no content but this metadata, as a bookmark of a watch is.
    pub(crate) fn empty(&self, metadata: &Value) -> Value {
        json!({ "kind": self.kind, "apiVersion": self.api_version(), "metadata": metadata })
    }

    pub fn is_builtin(&self) -> bool {
        self.custom.is_none()
    }

    /// `pods` or `deployments.apps`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    fn from_custom(custom: &CustomKind, version: &Arc<CustomVersion>, since: u64) -> Self {
        let mut subresources = Vec::new();
        if version.status {
            subresources.push(Subresource {
                name: "status".into(),
                kind: custom.kind.clone(),
                group: None,
                version: None,
                verbs: &["get", "patch", "update"],
            });
        }
        if version.scale.is_some() {
            subresources.push(Subresource {
                name: "scale".into(),
                kind: "Scale".into(),
                group: Some("autoscaling"),
                version: Some("v1"),
                verbs: &["get", "patch", "update"],
            });
        }
        let storage = custom.versions.iter().find(|v| v.storage).map_or("v1", |v| v.name.as_str());
        Self {
            group: custom.group.clone(),
            version: version.name.clone(),
            kind: custom.kind.clone(),
            list_kind: custom.list_kind.clone(),
            plural: custom.plural.clone(),
            singular: custom.singular.clone(),
            short_names: custom.short_names.clone(),
            categories: custom.categories.clone(),
            namespaced: custom.namespaced,
            since,
            verbs: Verbs::All,
            subresources,
            table: format!("{}/{}", custom.group, custom.plural).into(),
            storage: format!("{}/{storage}", custom.group),
            has_generation: true,
            create_on_update: false,
            needs_version: true,
            deletes_collection: true,
            fields: version.selectable_fields.clone(),
            source: Source::Custom(version.schema.clone()),
            custom: Some(Arc::clone(version)),
        }
    }
}

#[derive(Debug, Default)]
pub struct Kinds {
    by_resource: BTreeMap<(String, String, String), Arc<Kind>>,
    groups: Vec<(String, Vec<String>)>,
    /// Bumped at each change; discovery documents are cached under it.
    pub(crate) epoch: u64,
}

impl Kinds {
    pub fn builtin() -> Self {
        let mut kinds = Self::default();
        for kind in builtin::table() {
            kinds.add(kind);
        }
        kinds
    }

    fn add(&mut self, kind: Kind) {
        let versions = match self.groups.iter_mut().find(|(group, _)| *group == kind.group) {
            Some((_, versions)) => versions,
            None => {
                self.groups.push((kind.group.clone(), Vec::new()));
                let last = self.groups.len() - 1;
                match self.groups.get_mut(last) {
                    Some((_, versions)) => versions,
                    None => return,
                }
            }
        };
        if !versions.contains(&kind.version) {
            versions.push(kind.version.clone());
            versions.sort_by(|a, b| compare_versions(a, b));
        }
        let key = (kind.group.clone(), kind.version.clone(), kind.plural.clone());
        self.by_resource.insert(key, Arc::new(kind));
        self.epoch += 1;
    }

    pub fn serve(&mut self, custom: &CustomKind, since: u64) {
        self.withdraw(&custom.group, &custom.plural);
        for version in custom.versions.iter().filter(|v| v.served) {
            self.add(Kind::from_custom(custom, version, since));
        }
    }

    pub fn withdraw(&mut self, group: &str, plural: &str) {
        self.by_resource.retain(|(g, _, p), _| !(g == group && p == plural));
        let left: Vec<(String, String)> =
            self.by_resource.keys().map(|(g, v, _)| (g.clone(), v.clone())).collect();
        for (group, versions) in &mut self.groups {
            versions.retain(|version| left.iter().any(|(g, v)| g == group && v == version));
        }
        self.groups.retain(|(_, versions)| !versions.is_empty());
        self.epoch += 1;
    }

    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.by_resource.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Looks a kind up by its object header.
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Kind>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.by_resource.values().find(|k| k.group == group && k.version == version && k.kind == kind)
    }

    /// One kind per resource of a group, any version; the preferred version first.
    pub fn any_version(&self, group: &str, plural: &str) -> Option<&Arc<Kind>> {
        let (_, versions) = self.groups.iter().find(|(g, _)| g == group)?;
        versions.iter().find_map(|version| self.resource(group, version, plural))
    }

    pub fn of_table(&self, table: &str) -> Option<&Arc<Kind>> {
        let mut found = self.by_resource.values().filter(|k| &*k.table == table);
        let any = found.clone().next();
        found.find(|k| k.api_version() == k.storage).or(any)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.by_resource.values()
    }

    pub fn groups(&self) -> &[(String, Vec<String>)] {
        &self.groups
    }

    /// A text that changes whenever the OpenAPI document of that name does.
    pub(crate) fn fingerprint(&self, document: &str) -> String {
        let custom = self
            .by_resource
            .values()
            .filter(|kind| kind.custom.is_some() && document.ends_with(&kind.api_version()));
        custom.map(|kind| kind.custom.as_ref().map_or_else(String::new, |v| v.document.to_string())).collect()
    }

    /// Whether a group version is served.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.groups.iter().any(|(g, versions)| g == group && versions.iter().any(|v| v == version))
    }
}
