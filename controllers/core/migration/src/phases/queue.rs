//! Which migration may start. Ordered by priority, then by age; limited in number for the cluster and for each source
//! node. A migration that waits for its node does not hold up those behind it.

use neonvm_types::Timestamp;

use neonvm_core_vm_lifecycle::MigrationSettings;

/// A migration that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// `namespace/name`.
    pub name: String,
    /// UID.
    pub uid: String,
    /// UID of its VM.
    pub vm: String,
    /// Higher goes first.
    pub priority: i32,
    /// Then the older one.
    pub created: Option<Timestamp>,
    /// The VM's node.
    pub node: String,
    /// Whether the VM runs and is not being migrated: others need not wait for a migration that cannot start.
    pub ready: bool,
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
        (b.priority, a.created, &a.name, &a.uid).cmp(&(a.priority, b.created, &b.name, &b.uid))
    });
    waiting
}

/// Decides for each waiting migration whether it may start, in the order of [`ordered`]. `active`: one entry with the source
/// node for each running migration.
#[must_use]
pub fn admit(waiting: &[Waiting], active: &[String], limits: &MigrationSettings) -> Vec<Admission> {
    let mut leaving: Vec<&str> = active.iter().map(String::as_str).collect();
    let mut taken: Vec<(&str, &str)> = Vec::new();
    let mut ahead: Option<&str> = None;
    let mut answers = Vec::with_capacity(waiting.len());
    for one in waiting {
        let behind = ahead.map(|name| format!("; behind {name}")).unwrap_or_default();
        let from_node = leaving.iter().filter(|node| **node == one.node).count();
        let rival = taken.iter().find(|(vm, _)| *vm == one.vm);
        if !one.ready {
            answers.push(Admission::Wait(String::new()));
            continue;
        }
        let answer = if let Some((_, name)) = rival {
            Admission::Wait(format!("waits for migration {name} of the same VM"))
        } else if leaving.len() >= limits.cluster {
            let (now, most) = (leaving.len(), limits.cluster);
            Admission::Wait(format!("waits for its turn: {now} migrations at once, at most {most}{behind}"))
        } else if from_node >= limits.outbound {
            let (node, most) = (&one.node, limits.outbound);
            Admission::Wait(format!(
                "waits for its turn: {from_node} machines leave node {node}, at most {most}{behind}"
            ))
        } else {
            leaving.push(&one.node);
            Admission::Go
        };
        taken.push((&one.vm, &one.name));
        ahead = Some(&one.name);
        answers.push(answer);
    }
    answers
}

/// How many of those that wait would go if one machine fewer left `node` now.
#[must_use]
pub fn held_up(waiting: &[Waiting], active: &[String], limits: &MigrationSettings, node: &str) -> usize {
    let Some(own) = active.iter().position(|other| other == node) else { return 0 };
    let mut fewer = active.to_vec();
    fewer.remove(own);
    let go = |active: &[String]| {
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
            ready: true,
        }
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
        let limits = MigrationSettings { cluster: 4, ..MigrationSettings::default() };
        let answers = admit(&all, &["n9".into()], &limits);
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
        let limits = MigrationSettings { cluster: 3, outbound: 2, ..MigrationSettings::default() };
        let (here, there) = (one("here", "a", 0, 1, "n1"), one("there", "b", 0, 2, "n2"));
        let nodes = |all: &[&str]| all.iter().map(|node| (*node).to_owned()).collect::<Vec<_>>();
        let up = |waiting: &[&Waiting], active: &[&str], node: &str| {
            let waiting: Vec<Waiting> = waiting.iter().copied().cloned().collect();
            held_up(&waiting, &nodes(active), &limits, node)
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
            let limits = MigrationSettings { cluster, outbound, ..MigrationSettings::default() };
            let own = node(active[0]);
            let active: Vec<String> = active.into_iter().map(node).collect();
            let up = held_up(&all, &active, &limits, &own);
            prop_assert!(up <= 1, "{up}");
            let answers = admit(&all, &active, &limits);
            let waits = all.iter().zip(&answers).any(|(one, answer)| one.ready && *answer != Admission::Go);
            prop_assert!(up == 0 || waits);
            let full = active.len() >= cluster || active.iter().filter(|node| **node == own).count() >= outbound;
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
            let limits = MigrationSettings { cluster, outbound, ..MigrationSettings::default() };
            let active: Vec<String> = active.into_iter().map(node).collect();
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
                + active.iter().filter(|other| *other == node).count();
            prop_assert!(went.iter().all(|one| from(&one.node) <= outbound));
            for (one, answer) in all.iter().zip(&answers) {
                if one.ready && *answer != Admission::Go && went.len() + active.len() < cluster && from(&one.node) < outbound {
                    prop_assert!(all.iter().any(|other| other.ready && other.vm == one.vm && other.name != one.name));
                }
            }
        }
    }
}
