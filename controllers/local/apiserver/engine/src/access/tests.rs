use serde_json::{Value, json};

use super::*;

fn user(name: &str, groups: &[&str]) -> User {
    User {
        name: name.into(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        ..User::default()
    }
}

fn bot() -> User {
    user("system:serviceaccount:ns:bot", &["system:serviceaccounts", "system:authenticated"])
}

fn wants<'a>(
    user: &'a User,
    verb: &'a str,
    resource: &'a str,
    name: &'a str,
    namespace: &'a str,
) -> Attributes<'a> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    Attributes { verb, resource, subresource, name, namespace, ..Attributes::from_user(user) }
}

fn path<'a>(user: &'a User, path: &'a str) -> Attributes<'a> {
    Attributes { verb: "get", path, ..Attributes::from_user(user) }
}

fn recorded() -> RuleIndex {
    let role = json!({"metadata": {"name": "r", "namespace": "ns"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create"]},
        {"apiGroups": [""], "resources": ["configmaps/status", "pods/binding"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["delete"], "resourceNames": ["one"]},
    ]});
    let subjects = json!([{"kind": "ServiceAccount", "name": "bot", "namespace": "ns"}]);
    let binding = json!({"metadata": {"name": "r", "namespace": "ns"}, "subjects": subjects,
        "roleRef": {"kind": "Role", "name": "r"}});
    let dangling = json!({"metadata": {"name": "d", "namespace": "other"}, "subjects": subjects,
        "roleRef": {"kind": "ClusterRole", "name": "absent"}});
    let (roles, bindings) = bootstrapped();
    RuleIndex::build(&[role], &roles, &[binding, dangling], &bindings)
}

fn bootstrapped() -> (Vec<Value>, Vec<Value>) {
    bootstrap::objects().into_iter().partition(|object| object["kind"] == "ClusterRole")
}

#[test]
fn a_service_account_may_do_what_its_role_grants_and_no_more() {
    let (index, bot) = (recorded(), bot());
    for (verb, resource, name, namespace, allowed) in [
        ("get", "configmaps", "one", "ns", true),
        ("list", "configmaps", "", "ns", true),
        ("list", "configmaps", "", "", false),
        ("update", "configmaps", "one", "ns", false),
        ("delete", "configmaps", "one", "ns", true),
        ("delete", "configmaps", "two", "ns", false),
        ("deletecollection", "configmaps", "", "ns", false),
        ("patch", "configmaps/status", "one", "ns", true),
        ("patch", "configmaps", "one", "ns", false),
        ("get", "configmaps", "one", "default", false),
    ] {
        let wanted = wants(&bot, verb, resource, name, namespace);
        assert_eq!(index.authorize(&wanted).is_ok(), allowed, "{verb} {resource} {name} {namespace}");
    }
    let reason = index.decide(&wants(&bot, "get", "configmaps", "one", "ns")).reason;
    assert_eq!(reason, "RBAC: allowed by RoleBinding \"r/ns\" of Role \"r\" to ServiceAccount \"bot/ns\"");
}

#[test]
fn refusals_are_worded_as_recorded() {
    let (index, bot) = (recorded(), bot());
    let refused = |wanted: &Attributes<'_>| index.authorize(wanted).unwrap_err();
    assert_eq!(
        refused(&wants(&bot, "get", "pods/status", "x", "ns")),
        "User \"system:serviceaccount:ns:bot\" cannot get resource \"pods/status\" in API group \"\" in the \
         namespace \"ns\""
    );
    assert_eq!(
        refused(&wants(&bot, "list", "configmaps", "", "")),
        "User \"system:serviceaccount:ns:bot\" cannot list resource \"configmaps\" in API group \"\" at the \
         cluster scope"
    );
    let anonymous = User::anonymous();
    assert_eq!(
        refused(&path(&anonymous, "/metrics")),
        "User \"system:anonymous\" cannot get path \"/metrics\""
    );
    let dangling = index.decide(&wants(&bot, "get", "pods", "x", "other")).reason;
    assert_eq!(dangling, "RBAC: clusterrole.rbac.authorization.k8s.io \"absent\" not found");
}

#[test]
fn everyone_discovers_and_masters_do_all() {
    let index = recorded();
    let (anonymous, bot, master) = (User::anonymous(), bot(), user("admin", &[MASTERS]));
    assert!(index.authorize(&path(&bot, "/apis/apps")).is_ok());
    assert!(index.authorize(&path(&anonymous, "/healthz")).is_ok());
    assert!(index.authorize(&path(&anonymous, "/apis")).is_err());
    assert!(RuleIndex::default().authorize(&wants(&master, "delete", "nodes", "n", "")).is_ok());
}

#[test]
fn aggregated_roles_hold_what_labels_choose() {
    let (roles, _) = bootstrapped();
    let rules =
        |name: &str| roles.iter().find(|role| role["metadata"]["name"] == name).unwrap()["rules"].clone();
    let count = |name: &str| rules(name).as_array().unwrap().len();
    assert!(count("view") >= 9 && count("edit") > count("view") && count("admin") == count("edit") + 2);
    let admin = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}]);
    assert_eq!(rules("cluster-admin"), admin);

    let subject = json!([{"kind": "User", "name": "ann", "apiGroup": GROUP}]);
    let binding = json!({"metadata": {"name": "b", "namespace": "ns"}, "subjects": subject,
        "roleRef": {"kind": "ClusterRole", "name": "edit"}});
    let extra = json!({"metadata": {"name": "vm-view", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["vm.neon.tech"], "resources": ["virtualmachines"], "verbs": ["get"]}]});
    let mut all = roles.clone();
    all.push(extra);
    let index = RuleIndex::build(&[], &all, &[binding], &[]);
    let ann = user("ann", &[]);
    let wanted = Attributes { group: "vm.neon.tech", ..wants(&ann, "get", "virtualmachines", "x", "ns") };
    assert!(index.decide(&wanted).allowed, "view is part of edit, also for what joined later");
}

#[test]
fn a_user_cannot_grant_more_than_their_own_rights() {
    let (index, bot) = (recorded(), bot());
    let role = |rules: Value| json!({"metadata": {"name": "x", "namespace": "ns"}, "rules": rules});
    let check = |kind: &str, object: &Value| escalation::check(&index, &bot, kind, object);
    let less = role(json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]));
    assert_eq!(check("Role", &less), Ok(()));
    let more = role(json!([{"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}]));
    assert_eq!(
        check("Role", &more).unwrap_err(),
        "user \"system:serviceaccount:ns:bot\" (groups=[\"system:serviceaccounts\" \"system:authenticated\"]) is \
         attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"*\"], Verbs:[\"*\"]}"
    );
    let mut labelled = more.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(escalation::check_update(&index, &bot, "Role", &labelled, &more), Ok(()));
    assert!(escalation::check_update(&index, &bot, "Role", &more, &less).is_err());
    let bind = |name: &str| json!({"metadata": {"namespace": "ns"}, "roleRef": {"kind": "ClusterRole", "name": name}});
    assert!(check("RoleBinding", &bind("system:discovery")).is_ok());
    assert!(check("RoleBinding", &bind("cluster-admin")).is_err());
    assert!(check("RoleBinding", &bind("none")).unwrap_err().contains("not found"));
    let wide: Vec<String> = (0..1000).map(|at| at.to_string()).collect();
    let huge = role(json!([{"apiGroups": wide, "resources": wide, "verbs": wide, "resourceNames": wide}]));
    assert!(check("Role", &huge).is_err());
}

#[test]
fn reviews_answer_as_recorded() {
    let index = recorded();
    let master = user("admin", &[MASTERS, "system:authenticated"]);
    let ask = |kind: &str, spec: Value| review::answer(kind, &json!({"spec": spec}), &master, &index);
    let may = ask(
        "SelfSubjectAccessReview",
        json!({"resourceAttributes": {"verb": "delete", "resource": "nodes"}}),
    );
    assert_eq!(may.unwrap()["status"], json!({"allowed": true}));
    let attributes = json!({"verb": "get", "resource": "pods", "namespace": "ns"});
    let may = ask("SubjectAccessReview", json!({"user": "ann", "resourceAttributes": attributes}));
    assert_eq!(may.unwrap()["status"], json!({"allowed": false}));
    let error = ask("SubjectAccessReview", json!({"user": "ann"})).unwrap_err();
    assert_eq!(
        error.message,
        ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of \
         nonResourceAttributes or resourceAttributes must be specified"
    );
    let error = ask("SubjectAccessReview", json!({"resourceAttributes": attributes})).unwrap_err();
    assert_eq!(
        error.message,
        ".authorization.k8s.io \"\" is invalid: spec.user: Invalid value: \"\": at least one of user or group must \
         be specified"
    );
}
