use proptest::prelude::*;

use super::*;

const NAMESPACE: &str = "neonvm-system";

fn account(name: &str, node: Option<&str>) -> Asked {
    let extra = node.map(|node| (NODE_CLAIM.to_owned(), vec![node.to_owned()]));
    Asked {
        username: format!("system:serviceaccount:{NAMESPACE}:{name}"),
        groups: vec!["system:serviceaccounts".to_owned(), "system:authenticated".to_owned()],
        extra: extra.into_iter().collect(),
        ..Asked::default()
    }
}

fn admin() -> Asked {
    Asked { username: "admin".into(), groups: vec![MASTERS.into()], ..Asked::default() }
}

fn asks(who: Asked, common_name: &str, usage: &str) -> Verdict {
    let asked = Asked { common_name: common_name.to_owned(), usages: vec![usage.to_owned()], ..who };
    judge(NAMESPACE, &asked)
}

fn denial(verdict: Verdict) -> String {
    match verdict {
        Verdict::Deny(denial) => denial.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_agent_gets_the_names_of_its_own_node() {
    let own = account("neonvm-agent", Some("n1"));
    let Verdict::Grant(client) = asks(own.clone(), "neonvm-agent:n1", "client auth") else { panic!() };
    assert_eq!(client.subject, Subject::client("neonvm-agent:n1".into(), AGENTS));
    assert_eq!(client.seconds, SERVICE_LIFE);
    let Verdict::Grant(server) = asks(own.clone(), "neonvm-agent:n1", "server auth") else { panic!() };
    assert_eq!(server.subject, Subject::server("neonvm-agent:n1".into(), vec!["n1.agent.neonvm".into()]));
    let other = denial(asks(own, "neonvm-agent:n2", "client auth"));
    assert_eq!(other, "rule \"agents\": the token is of a pod on n1, not on n2");
    let unbound = denial(asks(account("neonvm-agent", None), "neonvm-agent:n1", "client auth"));
    assert_eq!(unbound, "rule \"agents\": the token is bound to no pod on a node");
    assert!(matches!(asks(admin(), "neonvm-agent:n1", "client auth"), Verdict::Grant(_)));
    let bound = Asked { groups: vec![MASTERS.into()], ..account("neonvm-runner", Some("n1")) };
    assert!(denial(asks(bound, "neonvm-agent:n1", "client auth")).starts_with("rule \"agents\""));
}

#[test]
fn a_scheduler_gets_the_names_of_schedulers() {
    let own = account("neonvm-scheduler", Some("n1"));
    let Verdict::Grant(server) = asks(own.clone(), SCHEDULER, "server auth") else { panic!() };
    let names = vec![SCHEDULER_NAME.to_owned(), "localhost".to_owned()];
    assert_eq!(server.subject, Subject::server(SCHEDULER_NAME.into(), names));
    let client = denial(asks(own.clone(), SCHEDULER, "client auth"));
    assert_eq!(client, "rule \"schedulers\": the scheduler is a server");
    assert!(matches!(asks(own.clone(), KUBE_SCHEDULER, "client auth"), Verdict::Grant(_)));
    assert!(denial(asks(own, "neonvm-agent:n1", "client auth")).contains("is not the service account"));
    assert!(matches!(asks(admin(), SCHEDULER, "server auth"), Verdict::Grant(_)));
}

#[test]
fn the_forwarder_of_upstream_s_agents_is_in_their_namespace() {
    let own = Asked {
        username: "system:serviceaccount:kube-system:neonvm-upstream-agents".into(),
        ..account("neonvm-upstream-agents", None)
    };
    let Verdict::Grant(client) = asks(own.clone(), UPSTREAM_AGENTS, "client auth") else { panic!() };
    assert_eq!(client.subject, Subject::client("neonvm-upstream-agents".into(), FORWARDERS));
    assert!(denial(asks(own, UPSTREAM_AGENTS, "server auth")).contains("is a client"));
    for stranger in ["neonvm-upstream-agents", "neonvm-agent", "neonvm-scheduler"] {
        let why = denial(asks(account(stranger, None), UPSTREAM_AGENTS, "client auth"));
        assert!(why.contains("is not the service account kube-system:neonvm-upstream-agents"), "{why}");
    }
}

#[test]
fn a_pod_autoscaler_gets_the_names_of_its_service() {
    let own = account("neonvm-pod-autoscaler", Some("n1"));
    let Verdict::Grant(server) = asks(own.clone(), POD_AUTOSCALER, "server auth") else { panic!() };
    let name = "neonvm-pod-autoscaler.neonvm-system.svc";
    let names = vec![format!("{name}.cluster.local"), name.to_owned()];
    assert_eq!(server.subject, Subject::server(POD_AUTOSCALER.into(), names));
    let client = denial(asks(own, POD_AUTOSCALER, "client auth"));
    assert_eq!(client, "rule \"pod-autoscalers\": a pod-autoscaler is a server");
    let other = denial(asks(account("neonvm-agent", Some("n1")), POD_AUTOSCALER, "server auth"));
    assert!(other.contains("is not the service account neonvm-pod-autoscaler"), "{other}");
}

#[test]
fn an_operator_is_asked_about() {
    let who = Asked { username: "ann".into(), seconds: Some(600), ..Asked::default() };
    let Verdict::IfOperator(grant) = asks(who, OPERATOR, "client auth") else { panic!() };
    assert_eq!(grant.subject, Subject::client("neonvm-operator:ann".into(), OPERATORS));
    assert_eq!(grant.seconds, 600);
    let denial = not_an_operator("ann").to_string();
    assert_eq!(denial, "rule \"operators\": ann may not inspect the signer vm.neon.tech/operators");
}

#[test]
fn a_certificate_has_one_purpose() {
    let asked = |usages: &[&str]| {
        let usages = usages.iter().map(|&usage| usage.to_owned()).collect();
        judge(NAMESPACE, &Asked { usages, common_name: OPERATOR.into(), ..admin() })
    };
    assert!(matches!(asked(&["digital signature", "client auth"]), Verdict::IfOperator(_)));
    for usages in [&[][..], &["digital signature"], &["client auth", "server auth"], &["client auth", "any"]]
    {
        assert!(denial(asked(usages)).starts_with("rule \"usages\""), "{usages:?}");
    }
}

fn any_request() -> impl Strategy<Value = Asked> {
    let user = prop_oneof![
        Just("system:serviceaccount:neonvm-system:neonvm-agent".to_owned()),
        Just("system:serviceaccount:neonvm-system:neonvm-scheduler".to_owned()),
        Just("system:serviceaccount:neonvm-system:neonvm-pod-autoscaler".to_owned()),
        Just("system:serviceaccount:other:neonvm-agent".to_owned()),
        Just("admin".to_owned()),
        ".{0,20}",
    ];
    let group = prop_oneof![Just(MASTERS.to_owned()), Just(OPERATORS.to_owned()), ".{0,10}"];
    let node = || prop_oneof![Just("n1".to_owned()), Just("n2".to_owned()), ".{0,10}"];
    let extra = prop::option::of(prop::collection::vec(node(), 0..3));
    let usage = prop_oneof![
        6 => Just("client auth".to_owned()),
        6 => Just("server auth".to_owned()),
        2 => Just("digital signature".to_owned()),
        1 => ".{0,10}",
    ];
    let name = prop_oneof![
        4 => node().prop_map(|node| agent_common_name(&node)),
        1 => Just(SCHEDULER.to_owned()),
        1 => Just(KUBE_SCHEDULER.to_owned()),
        1 => Just(POD_AUTOSCALER.to_owned()),
        1 => Just(OPERATOR.to_owned()),
        1 => ".{0,20}",
    ];
    let groups = prop::collection::vec(group, 0..3);
    let usages = prop::collection::vec(usage, 0..3);
    (user, groups, extra, usages, name, any::<Option<i64>>()).prop_map(
        |(username, groups, extra, usages, common_name, seconds)| Asked {
            username,
            groups,
            extra: extra.into_iter().map(|nodes| (NODE_CLAIM.to_owned(), nodes)).collect(),
            usages,
            common_name,
            seconds,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Whatever is requested: names, organisation, purpose and life are those of a rule that holds for the requester.
    #[test]
    fn no_client_gets_more_than_the_rules_give(asked in any_request()) {
        let (grant, review) = match judge(NAMESPACE, &asked) {
            Verdict::Deny(denial) => {
                prop_assert!(!denial.why.is_empty());
                return Ok(());
            }
            Verdict::Grant(grant) => (grant, false),
            Verdict::IfOperator(grant) => (grant, true),
        };
        let Grant { subject, seconds } = grant;
        let longest = if review { OPERATOR_LIFE } else { SERVICE_LIFE };
        prop_assert!(seconds > 0 && seconds <= longest);
        // One identity for one purpose: a server has names and no organisation, a client the other way round.
        prop_assert_eq!(subject.purpose == Purpose::Server, subject.organisation.is_none());
        prop_assert_eq!(subject.purpose == Purpose::Server, !subject.dns_names.is_empty());
        prop_assert_eq!(review, subject.organisation.as_deref() == Some(OPERATORS));
        let master = asked.groups.iter().any(|group| group == MASTERS) && !asked.extra.contains_key(NODE_CLAIM);
        let account = |name: &str| asked.username == format!("system:serviceaccount:{NAMESPACE}:{name}");
        if let Some(node) = node_of_agent(&subject.common_name) {
            let bound = asked.extra.get(NODE_CLAIM).is_some_and(|nodes| nodes.len() == 1 && nodes[0] == node);
            prop_assert!(master || account("neonvm-agent") && bound);
            let own = agent_name(node);
            prop_assert!(subject.dns_names.iter().all(|name| *name == own));
        } else if subject.common_name == POD_AUTOSCALER {
            prop_assert!(master || account("neonvm-pod-autoscaler"));
            let own = "neonvm-pod-autoscaler.neonvm-system.svc";
            prop_assert!(subject.dns_names.iter().all(|name| name.starts_with(own)));
        } else if !review {
            prop_assert!(master || account("neonvm-scheduler"));
            prop_assert!(subject.dns_names.iter().all(|name| name == SCHEDULER_NAME || name == "localhost"));
        }
    }
}
