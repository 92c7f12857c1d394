//! Frozen control groups are thawed by process 1 too, if the program that froze them ends or hangs.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use super::cgroup::{Cgroup, is_below};

/// First word of the line by which a child of init announces that it is about to freeze a group.
const ANNOUNCED: &str = "freezes ";
/// When process 1 thaws an announced group, after the announcement. More than once: the child may have been late.
const CHECKS: [Duration; 3] = [Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(10)];

/// Announces that a group is about to be frozen. To be called by children of init only.
///
/// # Errors
/// If init cannot be reached; the group must not be frozen then.
pub fn announce(name: &str) -> io::Result<()> {
    let mut output = io::stdout();
    writeln!(output, "{ANNOUNCED}{name}")?;
    output.flush()
}

/// The group that a line of a child announces.
pub fn announced(line: &str) -> Option<&str> {
    let name = line.trim_end().strip_prefix(ANNOUNCED)?;
    (is_below(name) && !name.is_empty()).then_some(name)
}

/// What process 1 has to thaw, and when.
#[derive(Debug, Default)]
pub struct Freezer {
    groups: Vec<Frozen>,
}

#[derive(Debug)]
struct Frozen {
    name: String,
    since: Duration,
    done: usize,
}

impl Frozen {
    fn due(&self) -> Option<Duration> {
        CHECKS.get(self.done).map(|pause| self.since.saturating_add(*pause))
    }
}

impl Freezer {
    /// A child has announced at `now` that it freezes this group.
    pub fn note(&mut self, name: &str, now: Duration) {
        self.groups.retain(|group| group.name != name);
        self.groups.push(Frozen { name: name.to_owned(), since: now, done: 0 });
    }

    /// When the next group is to be thawed.
    pub fn wake_at(&self) -> Option<Duration> {
        self.groups.iter().filter_map(Frozen::due).min()
    }

    /// The groups to thaw at `now`.
    pub fn due(&mut self, now: Duration) -> Vec<String> {
        let mut due = Vec::new();
        for group in &mut self.groups {
            if group.due().is_some_and(|at| at <= now) {
                group.done = group.done.saturating_add(1);
                due.push(group.name.clone());
            }
        }
        self.groups.retain(|group| group.due().is_some());
        due
    }

    /// All groups that may be frozen: the child has ended.
    pub fn all(&mut self) -> Vec<String> {
        self.groups.drain(..).map(|group| group.name).collect()
    }
}

/// Thaws groups of these names; one that does not exist is no error.
pub fn thaw(names: &[String]) {
    for name in names {
        let _ = Cgroup::below(Path::new(super::cgroup::ROOT), name).set_frozen(false);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn only_groups_below_the_root_are_announced() {
        assert_eq!(announced("freezes workload\n"), Some("workload"));
        assert_eq!(announced("freezes services/a b\n"), Some("services/a b"));
        for line in ["freezes \n", "freezes ../x", "freezes /x", "freezes a/../b", "{}", "thaws x"] {
            assert_eq!(announced(line), None, "{line}");
        }
    }

    #[test]
    fn a_group_is_thawed_three_times() {
        let mut freezer = Freezer::default();
        assert_eq!(freezer.wake_at(), None);
        freezer.note("a", at(1000));
        assert_eq!(freezer.wake_at(), Some(at(1100)));
        assert!(freezer.due(at(1099)).is_empty());
        assert_eq!(freezer.due(at(1100)), ["a"]);
        assert_eq!(freezer.due(at(2500)), ["a"]);
        assert_eq!(freezer.wake_at(), Some(at(11_000)));
        assert_eq!(freezer.due(at(11_000)), ["a"]);
        assert_eq!(freezer.wake_at(), None);
        freezer.note("b", at(20_000));
        assert_eq!(freezer.all(), ["b"]);
        assert_eq!(freezer.wake_at(), None);
    }

    proptest! {
        /// Whatever is announced, each group is thawed at the latest 100 ms after its last announcement.
        #[test]
        fn every_announced_group_is_thawed(steps in proptest::collection::vec((0..400u64, 0..4u8, any::<bool>()), 1..60)) {
            let mut freezer = Freezer::default();
            let mut owed: std::collections::BTreeMap<String, Duration> = std::collections::BTreeMap::new();
            let mut now = Duration::ZERO;
            for (pause, name, announces) in steps {
                let next = now + at(pause);
                // Process 1 wakes when it is due.
                while let Some(due) = freezer.wake_at().filter(|due| *due <= next) {
                    for name in freezer.due(due) {
                        owed.remove(&name);
                    }
                    prop_assert!(owed.values().all(|latest| due <= *latest));
                }
                now = next;
                if announces {
                    freezer.note(&name.to_string(), now);
                    owed.insert(name.to_string(), now + at(100));
                }
                prop_assert!(owed.is_empty() || freezer.wake_at().is_some());
            }
        }
    }
}
