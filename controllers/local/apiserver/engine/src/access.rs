//! Authorization: role-based access rules, decided over an index of the four kinds of objects that state them.
//!
//! [`RuleIndex`] answers requests; [`review`] answers questions about access; [`escalation`] keeps people from handing
//! out more than they have; [`bootstrap`] holds the roles that every cluster starts with.

pub mod bootstrap;
pub mod escalation;
pub mod review;
mod rule;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

pub use self::rule::{Rule, aggregated_rules};
use crate::context::User;

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// Group whose members may do everything, regardless of roles and bindings.
pub const MASTERS: &str = "system:masters";

#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    pub user: &'a User,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or a special one.
    pub verb: &'a str,
    /// API group of the resource; empty for core.
    pub group: &'a str,
    /// Plural resource name; empty for a path.
    pub resource: &'a str,
    pub subresource: &'a str,
    pub name: &'a str,
    /// Namespace, empty at the cluster scope.
    pub namespace: &'a str,
    /// For requests that are not about resources: the path. Empty for the others.
    pub path: &'a str,
}

impl<'a> Attributes<'a> {
    pub fn from_user(user: &'a User) -> Self {
        Self { user, verb: "", group: "", resource: "", subresource: "", name: "", namespace: "", path: "" }
    }

    /// `User "x" cannot get resource "pods" in API group "" in the namespace "y"`.
    pub fn refusal(&self) -> String {
        let Self { user, verb, group, resource, subresource, .. } = self;
        let who = format!("User {:?} cannot {verb}", user.name);
        if !self.path.is_empty() {
            return format!("{who} path {:?}", self.path);
        }
        let full =
            if subresource.is_empty() { (*resource).to_owned() } else { format!("{resource}/{subresource}") };
        if self.namespace.is_empty() {
            format!("{who} resource {full:?} in API group {group:?} at the cluster scope")
        } else {
            format!("{who} resource {full:?} in API group {group:?} in the namespace {:?}", self.namespace)
        }
    }
}

/// An answer and its grounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    /// Which binding allows it, or which roles that are bound do not exist; may be empty.
    pub reason: String,
}

#[derive(Clone, Debug)]
struct Grant {
    /// `None`: the role does not exist.
    rules: Option<Arc<Vec<Rule>>>,
    /// `ClusterRoleBinding "b" of ClusterRole "r" to Group "g"`.
    origin: Arc<str>,
    role: Arc<str>,
}

/// Grants by subject: `u:<user>`, `g:<group>`.
type Grants = BTreeMap<String, Vec<Grant>>;

/// All access rules, indexed by subject. Rebuilt when a role or binding changes.
#[derive(Clone, Debug, Default)]
pub struct RuleIndex {
    cluster_roles: BTreeMap<String, Arc<Vec<Rule>>>,
    roles: BTreeMap<(String, String), Arc<Vec<Rule>>>,
    cluster: Grants,
    namespaced: BTreeMap<String, Grants>,
}

fn text<'a>(object: &'a Value, path: [&str; 2]) -> &'a str {
    let [first, second] = path;
    object.get(first).and_then(|value| value.get(second)?.as_str()).unwrap_or_default()
}

impl RuleIndex {
    /// Reads all roles and bindings. Malformed ones grant nothing.
    pub fn build(
        roles: &[Value],
        cluster_roles: &[Value],
        bindings: &[Value],
        cluster_bindings: &[Value],
    ) -> Self {
        let mut index = Self::default();
        for role in cluster_roles {
            let rules = if role.get("aggregationRule").is_some_and(|rule| !rule.is_null()) {
                aggregated_rules(role, cluster_roles).iter().map(Rule::read).collect()
            } else {
                Rule::of_role(role)
            };
            index.cluster_roles.insert(text(role, ["metadata", "name"]).to_owned(), Arc::new(rules));
        }
        for role in roles {
            let key = (
                text(role, ["metadata", "namespace"]).to_owned(),
                text(role, ["metadata", "name"]).to_owned(),
            );
            index.roles.insert(key, Arc::new(Rule::of_role(role)));
        }
        for binding in cluster_bindings {
            index.bind(binding, "");
        }
        for binding in bindings {
            index.bind(binding, text(binding, ["metadata", "namespace"]));
        }
        index
    }

    fn bind(&mut self, binding: &Value, namespace: &str) {
        let (kind, role) = (text(binding, ["roleRef", "kind"]), text(binding, ["roleRef", "name"]));
        let rules = self.rules_of(kind, role, namespace);
        let name = text(binding, ["metadata", "name"]);
        let title = if namespace.is_empty() {
            format!("ClusterRoleBinding {name:?}")
        } else {
            format!("RoleBinding {:?}", format!("{name}/{namespace}"))
        };
        let role_name: Arc<str> =
            Arc::from(format!("{}.{GROUP} {role:?} not found", kind.to_ascii_lowercase()));
        let subjects = binding.get("subjects").and_then(Value::as_array).into_iter().flatten();
        for subject in subjects {
            let Some((key, shown)) = subject_key(subject, namespace) else { continue };
            let origin = Arc::from(format!("{title} of {kind} {role:?} to {shown}"));
            let grant = Grant { rules: rules.clone(), origin, role: Arc::clone(&role_name) };
            let grants = if namespace.is_empty() {
                &mut self.cluster
            } else {
                self.namespaced.entry(namespace.to_owned()).or_default()
            };
            grants.entry(key).or_default().push(grant);
        }
    }

    /// The rules of a role; a `Role` is looked up in `namespace`.
    pub(crate) fn rules_of(&self, kind: &str, name: &str, namespace: &str) -> Option<Arc<Vec<Rule>>> {
        if kind == "ClusterRole" {
            self.cluster_roles.get(name).cloned()
        } else {
            self.roles.get(&(namespace.to_owned(), name.to_owned())).cloned()
        }
    }

    /// Everything granted to `user` at the cluster scope and in `namespace`.
    fn grants<'a>(&'a self, user: &'a User, namespace: &'a str) -> impl Iterator<Item = &'a Grant> {
        let mut keys = Vec::with_capacity(user.groups.len() + 1);
        keys.push(format!("u:{}", user.name));
        keys.extend(user.groups.iter().map(|group| format!("g:{group}")));
        let local = if namespace.is_empty() { None } else { self.namespaced.get(namespace) };
        std::iter::once(&self.cluster).chain(local).flat_map(move |grants| {
            keys.iter().filter_map(|key| grants.get(key)).flatten().collect::<Vec<_>>()
        })
    }

    pub fn rules_for(&self, user: &User, namespace: &str) -> Vec<Rule> {
        self.grants(user, namespace).filter_map(|grant| grant.rules.as_deref()).flatten().cloned().collect()
    }

    pub fn decide(&self, wanted: &Attributes<'_>) -> Decision {
        if is_master(wanted.user) {
            return Decision { allowed: true, reason: String::new() };
        }
        let mut missing = BTreeSet::new();
        for grant in self.grants(wanted.user, wanted.namespace) {
            match &grant.rules {
                Some(rules) if rules.iter().any(|rule| rule.allows(wanted)) => {
                    return Decision { allowed: true, reason: format!("RBAC: allowed by {}", grant.origin) };
                }
                Some(_) => {}
                None => {
                    missing.insert(&*grant.role);
                }
            }
        }
        let missing: Vec<&str> = missing.into_iter().collect();
        let reason = match missing.as_slice() {
            [] => String::new(),
            [only] => format!("RBAC: {only}"),
            many => format!("RBAC: [{}]", many.join(", ")),
        };
        Decision { allowed: false, reason }
    }

    /// Lets a request pass, or refuses it.
    ///
    /// # Errors
    /// The grounds as the real server words them, to stand after `pods "x" is forbidden: `.
    pub fn authorize(&self, wanted: &Attributes<'_>) -> Result<(), String> {
        if is_master(wanted.user) {
            return Ok(());
        }
        let Decision { allowed, reason } = self.decide(wanted);
        if allowed {
            return Ok(());
        }
        let why = wanted.refusal();
        Err(if reason.is_empty() { why } else { format!("{why}: {reason}") })
    }
}

pub fn service_account(namespace: &str, name: &str, uid: &str) -> User {
    let groups =
        ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}"), "system:authenticated"];
    User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        uid: uid.to_owned(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        extra: Vec::new(),
    }
}

pub(crate) fn is_master(user: &User) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

/// Index key and printed form of a subject; a service account is indexed by its user name.
fn subject_key(subject: &Value, namespace: &str) -> Option<(String, String)> {
    let get = |key: &str| subject.get(key).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (get("kind"), get("name"));
    let key = match kind {
        "User" => format!("u:{name}"),
        "Group" => format!("g:{name}"),
        "ServiceAccount" => {
            let own = if get("namespace").is_empty() { namespace } else { get("namespace") };
            let shown = format!("{kind} {:?}", format!("{name}/{own}"));
            return (!own.is_empty()).then(|| (format!("u:system:serviceaccount:{own}:{name}"), shown));
        }
        _ => return None,
    };
    Some((key, format!("{kind} {name:?}")))
}

#[cfg(test)]
mod tests;
