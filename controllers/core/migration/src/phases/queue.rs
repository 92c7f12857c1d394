//! Which migration may start. Those away from cordoned nodes go first, others by priority, then by age; limited in number for the
//! cluster, for each source node and, unless they leave a cordoned node, for each namespace. A migration that waits for its node does
//! not hold up those behind it, and one away from a cordoned node waits for no other kind: users who may migrate VMs must not be able to
//! hold up a drain.

use neonvm_types::Timestamp;

use neonvm_core_vm_lifecycle::MigrationSettings;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// `namespace/name`.
    pub name: String,
    pub uid: String,
    pub vm: String,
    pub namespace: String,
    /// Whether the VM's node is cordoned: it is being drained.
    pub drain: bool,
    /// Higher goes first, of those that are not drains.
    pub priority: i32,
    /// Then the older one.
    pub created: Option<Timestamp>,
    /// The VM's node.
    pub node: String,
    /// Whether the VM runs and is not being migrated: others need not wait for a migration that cannot start.
    pub ready: bool,
}

/// A migration that runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Active {
    pub node: String,
    pub namespace: String,
    /// Whether the node is cordoned.
    pub drain: bool,
}

/// The word on one migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may start.
    Go,
    /// Not yet; for people.
    Wait(String),
}

/// The order of those that wait.
#[must_use]
pub fn ordered(mut waiting: Vec<Waiting>) -> Vec<Waiting> {
    waiting.sort_by(|a, b| {
        let rank = |one: &Waiting| (one.drain, if one.drain { 0 } else { one.priority });
        (rank(b), a.created, &a.name, &a.uid).cmp(&(rank(a), b.created, &b.name, &b.uid))
    });
    waiting
}

/// Decides for each waiting migration whether it may start, in the order of [`ordered`].
#[must_use]
pub fn admit(waiting: &[Waiting], active: &[Active], limits: &MigrationSettings) -> Vec<Admission> {
    let mut leaving: Vec<Active> = active.to_vec();
    let mut taken: Vec<(&str, &str)> = Vec::new();
    let mut ahead: Option<&str> = None;
    let mut answers = Vec::with_capacity(waiting.len());
    for one in waiting {
        if !one.ready {
            answers.push(Admission::Wait(String::new()));
            continue;
        }
        let behind = ahead.map(|name| format!("; behind {name}")).unwrap_or_default();
        let rival = taken.iter().find(|(vm, _)| *vm == one.vm);
        let full = full(one, &leaving, limits);
        let answer = match (rival, full) {
            (Some((_, name)), _) => Admission::Wait(format!("waits for migration {name} of the same VM")),
            (None, Some(why)) => Admission::Wait(format!("waits for its turn: {why}{behind}")),
            (None, None) => {
                leaving.push(one.active());
                Admission::Go
            }
        };
        taken.push((&one.vm, &one.name));
        ahead = Some(&one.name);
        answers.push(answer);
    }
    answers
}

/// The limit that a migration meets, in words.
fn full(one: &Waiting, leaving: &[Active], limits: &MigrationSettings) -> Option<String> {
    let count = |of: &dyn Fn(&Active) -> bool| {
        leaving.iter().filter(|other| (other.drain || !one.drain) && of(other)).count()
    };
    let all = count(&|_| true);
    let from_node = count(&|other| other.node == one.node);
    let of_namespace = count(&|other| !other.drain && other.namespace == one.namespace);
    if all >= limits.cluster {
        Some(format!("{all} migrations at once, at most {}", limits.cluster))
    } else if from_node >= limits.outbound {
        Some(format!("{from_node} machines leave node {}, at most {}", one.node, limits.outbound))
    } else if !one.drain && of_namespace >= limits.namespace {
        let (name, most) = (&one.namespace, limits.namespace);
        Some(format!("{of_namespace} migrations of namespace {name} at once, at most {most}"))
    } else {
        None
    }
}

impl Waiting {
    fn active(&self) -> Active {
        Active { node: self.node.clone(), namespace: self.namespace.clone(), drain: self.drain }
    }
}

/// How many of those that wait would go if the migration `own` did not run.
#[must_use]
pub fn held_up(waiting: &[Waiting], active: &[Active], limits: &MigrationSettings, own: &Active) -> usize {
    let Some(own) = active.iter().position(|other| other == own) else { return 0 };
    let mut fewer = active.to_vec();
    fewer.remove(own);
    let go = |active: &[Active]| {
        let answers = admit(waiting, active, limits);
        answers.iter().filter(|answer| **answer == Admission::Go).count()
    };
    go(&fewer).saturating_sub(go(active))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(name: &str, vm: &str, priority: i32, created: i64, node: &str) -> Waiting {
        Waiting {
            name: name.into(),
            uid: format!("uid-{name}"),
            vm: vm.into(),
            priority,
            created: Timestamp::from_unix(created),
            node: node.into(),
            namespace: "d".into(),
            drain: false,
            ready: true,
        }
    }

    /// Running migrations of another namespace away from these nodes.
    fn active(nodes: &[&str]) -> Vec<Active> {
        let one = |node: &&str| Active { node: (*node).to_owned(), namespace: "other".into(), drain: false };
        nodes.iter().map(one).collect()
    }

    fn text(answer: &Admission) -> &str {
        match answer {
            Admission::Go => "go",
            Admission::Wait(why) => why,
        }
    }

    #[test]
    fn priority_then_age_and_each_reason() {
        let all = ordered(vec![
            one("old", "a", 0, 1, "n1"),
            one("urgent", "b", 9, 3, "n1"),
            one("again", "b", 0, 2, "n1"),
            one("third", "c", 0, 4, "n1"),
            one("fourth", "d", 0, 5, "n2"),
            one("last", "e", 0, 6, "n3"),
        ]);
        let limits = MigrationSettings { cluster: 4, namespace: 9, ..MigrationSettings::default() };
        let answers = admit(&all, &active(&["n9"]), &limits);
        let texts: Vec<(&str, &str)> =
            all.iter().zip(&answers).map(|(one, answer)| (one.name.as_str(), text(answer))).collect();
        assert_eq!(
            texts,
            [
                ("urgent", "go"),
                ("old", "go"),
                ("again", "waits for migration urgent of the same VM"),
                ("third", "waits for its turn: 2 machines leave node n1, at most 2; behind again"),
                ("fourth", "go"),
                ("last", "waits for its turn: 4 migrations at once, at most 4; behind fourth"),
            ]
        );
    }

    #[test]
    fn who_would_go_if_one_gave_way() {
        let limits =
            MigrationSettings { cluster: 3, outbound: 2, namespace: 9, ..MigrationSettings::default() };
        let (here, there) = (one("here", "a", 0, 1, "n1"), one("there", "b", 0, 2, "n2"));
        let up = |waiting: &[&Waiting], nodes: &[&str], node: &str| {
            let waiting: Vec<Waiting> = waiting.iter().copied().cloned().collect();
            held_up(&waiting, &active(nodes), &limits, &active(&[node])[0])
        };
        assert_eq!(up(&[], &["n1", "n1", "n3"], "n1"), 0, "no migration waits");
        assert_eq!(up(&[&here], &["n1", "n1"], "n1"), 1, "the node's limit");
        assert_eq!(up(&[&here], &["n1", "n1", "n3"], "n3"), 0, "the node's limit is the other's");
        assert_eq!(up(&[&there], &["n1", "n1", "n3"], "n1"), 1, "the cluster's limit");
        assert_eq!(up(&[&there], &["n1", "n1"], "n1"), 0, "it goes anyway");
        assert_eq!(up(&[&here, &there], &["n1", "n1", "n3"], "n1"), 1, "one place is one");
        assert_eq!(up(&[&here], &["n3"], "n1"), 0, "no VM leaves that node");
        let late = Waiting { ready: false, ..here.clone() };
        assert_eq!(up(&[&late], &["n1", "n1"], "n1"), 0, "it cannot go for its own reasons");
    }

    /// Finding 14: one namespace fills no cluster, and nothing that an author writes goes before a drain or holds its place.
    #[test]
    fn a_drain_waits_for_no_tenant() {
        let limits = MigrationSettings::default();
        let tenants: Vec<Waiting> = (0..9)
            .map(|index| one(&format!("t{index}"), &format!("v{index}"), i32::MAX, 1, &format!("n{index}")))
            .collect();
        let went = |answers: &[Admission]| answers.iter().filter(|answer| **answer == Admission::Go).count();
        assert_eq!(went(&admit(&tenants, &[], &limits)), limits.namespace);
        let answers = admit(&tenants, &[], &limits);
        assert_eq!(
            text(&answers[3]),
            "waits for its turn: 3 migrations of namespace d at once, at most 3; behind t2"
        );
        // All places of the cluster and of the node are taken, for hours.
        let full = active(&["n1", "n1", "n2", "n3", "n4"]);
        let drain = Waiting {
            drain: true,
            priority: i32::MIN,
            created: Timestamp::from_unix(99),
            ..one("drain", "x", 0, 0, "n1")
        };
        let line = ordered(tenants.into_iter().chain([drain]).collect());
        assert_eq!(line[0].name, "drain");
        let answers = admit(&line, &full, &limits);
        assert_eq!((text(&answers[0]), went(&answers)), ("go", 1));
        // Drains have limits of their own.
        let draining = |node: &str| Active { drain: true, ..active(&[node])[0].clone() };
        let answers = admit(&line[..1], &[draining("n1"), draining("n1")], &limits);
        assert_eq!(text(&answers[0]), "waits for its turn: 2 machines leave node n1, at most 2");
    }

    proptest! {
        /// A migration that gives way lets at most one other go, and none gives way while the other has room.
        #[test]
        fn one_place_is_for_one(
            waiting in prop::collection::vec((0u8..6, -2i32..3, 0i64..9, 0u8..4, any::<bool>()), 0..20),
            active in prop::collection::vec(0u8..4, 1..7),
            cluster in 1usize..7,
            outbound in 1usize..4,
        ) {
            let node = |number: u8| format!("n{number}");
            let all = ordered(waiting.iter().enumerate().map(|(index, (vm, priority, age, at, ready))| {
                Waiting { ready: *ready, ..one(&format!("m{index}"), &format!("vm{vm}"), *priority, *age, &node(*at)) }
            }).collect());
            let limits = MigrationSettings { cluster, outbound, namespace: 99, ..MigrationSettings::default() };
            let own = node(active[0]);
            let names: Vec<String> = active.into_iter().map(node).collect();
            let active = super::tests::active(&names.iter().map(String::as_str).collect::<Vec<_>>());
            let up = held_up(&all, &active, &limits, &active[0].clone());
            prop_assert!(up <= 1, "{up}");
            let answers = admit(&all, &active, &limits);
            let waits = all.iter().zip(&answers).any(|(one, answer)| one.ready && *answer != Admission::Go);
            prop_assert!(up == 0 || waits);
            let full = active.len() >= cluster || active.iter().filter(|other| other.node == own).count() >= outbound;
            if !full && up > 0 {
                // Those that go now fill it.
                prop_assert!(answers.contains(&Admission::Go));
            }
        }

        /// Limits hold, and no migration waits while there is room for it.
        #[test]
        fn limits_are_kept_and_used(
            waiting in prop::collection::vec((0u8..6, -2i32..3, 0i64..9, 0u8..4, any::<bool>()), 0..20),
            active in prop::collection::vec(0u8..4, 0..3),
            cluster in 1usize..7,
            outbound in 1usize..4,
        ) {
            let node = |number: u8| format!("n{number}");
            let all = ordered(waiting.iter().enumerate().map(|(index, (vm, priority, age, at, ready))| {
                Waiting { ready: *ready, ..one(&format!("m{index}"), &format!("vm{vm}"), *priority, *age, &node(*at)) }
            }).collect());
            let limits = MigrationSettings { cluster, outbound, namespace: 99, ..MigrationSettings::default() };
            let names: Vec<String> = active.into_iter().map(node).collect();
            let active = super::tests::active(&names.iter().map(String::as_str).collect::<Vec<_>>());
            let answers = admit(&all, &active, &limits);
            let went: Vec<&Waiting> =
                all.iter().zip(&answers).filter(|(_, answer)| **answer == Admission::Go).map(|(one, _)| one).collect();
            let mut vms: Vec<&str> = went.iter().map(|one| one.vm.as_str()).collect();
            vms.sort_unstable();
            let count = vms.len();
            vms.dedup();
            prop_assert_eq!(vms.len(), count, "two for one machine");
            prop_assert!(went.is_empty() || went.len() + active.len() <= cluster);
            let from = |node: &str| went.iter().filter(|one| one.node == node).count()
                + active.iter().filter(|other| other.node == node).count();
            prop_assert!(went.iter().all(|one| from(&one.node) <= outbound));
            for (one, answer) in all.iter().zip(&answers) {
                if one.ready && *answer != Admission::Go && went.len() + active.len() < cluster && from(&one.node) < outbound {
                    prop_assert!(all.iter().any(|other| other.ready && other.vm == one.vm && other.name != one.name));
                }
            }
        }
    }
}
