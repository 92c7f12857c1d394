//! The past of a VM: what its agents kept, events and migrations, merged into one account. Pure.
//!
//! [`Past`] is made from what `commands/vm/history` fetched; [`words`], [`chart`] and [`page`] show it.

pub(crate) mod chart;
pub(crate) mod page;
pub(crate) mod summary;
pub(crate) mod words;

#[cfg(test)]
pub(crate) mod tests;

use neonvm_types::agent_history::{AgentHistory, Sample};
use serde::Serialize;
use serde_json::{Value, json};

use crate::report::API_VERSION;

/// Without a sample for so long no agent observed the VM: lines have a gap. In milliseconds; an agent records an idle VM every
/// five minutes.
pub(crate) const GAP: i64 = 11 * 60 * 1000;

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Kind {
    /// An agent began to scale the VM.
    Agent,
    Decision,
    Event,
    /// An event of the cluster that warns.
    Warning,
    /// A live migration began or ended.
    Migration,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Entry {
    /// Milliseconds since 1970.
    #[serde(serialize_with = "written")]
    pub(crate) at: i64,
    pub(crate) kind: Kind,
    /// The component that reported it.
    pub(crate) from: String,
    pub(crate) text: String,
    /// A few words, for a mark in a plot; empty: none.
    #[serde(skip)]
    pub(crate) mark: String,
}

fn written<S: serde::Serializer>(at: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&words::time(*at))
}

/// All that is known of a time window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Past {
    /// `namespace/name`.
    pub(crate) vm: String,
    /// Milliseconds since 1970.
    pub(crate) since: i64,
    pub(crate) until: i64,
    /// Oldest first.
    pub(crate) entries: Vec<Entry>,
    /// Oldest first; the first one may be from the start of the window, where an earlier one held.
    pub(crate) samples: Vec<(i64, Sample)>,
}

impl Past {
    /// Merges what agents kept with other entries, and leaves out what is beyond the window.
    pub(crate) fn new(
        vm: String,
        (since, until): (i64, i64),
        agents: Vec<AgentHistory>,
        others: Vec<Entry>,
    ) -> Self {
        let mut past = Self { vm, since, until, entries: others, samples: Vec::new() };
        for agent in agents {
            let from = format!("agent/{}", agent.node);
            for record in agent.records {
                let entry =
                    |kind, text| Entry { at: record.at, kind, from: from.clone(), text, mark: String::new() };
                if let Some(began) = record.began {
                    past.entries
                        .push(entry(Kind::Agent, format!("begins to scale the VM in pod {}", began.pod)));
                }
                if let Some(decision) = record.decision {
                    let reason = decision.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
                    past.entries.push(entry(Kind::Decision, decision.text + &reason));
                }
                past.samples.extend(record.sample.map(|sample| (record.at, sample)));
            }
        }
        past.entries.retain(|entry| (since..=until).contains(&entry.at));
        past.entries.sort_by_key(|entry| (entry.at, entry.kind));
        past.samples.sort_by_key(|(at, _)| *at);
        past.samples.retain(|(at, _)| *at <= until);
        past.begin();
        past
    }

    /// The last sample before the window holds at its start, unless it is too old.
    fn begin(&mut self) {
        let before = self.samples.iter().take_while(|(at, _)| *at < self.since).count();
        let held = before.checked_sub(1).and_then(|last| self.samples.get(last).copied());
        self.samples.drain(..before);
        if let Some((_, sample)) = held.filter(|(at, _)| self.since - at < GAP) {
            self.samples.insert(0, (self.since, sample));
        }
    }

    /// Each sample with the time until the next one, in milliseconds: what it stands for.
    pub(crate) fn spans(&self) -> impl Iterator<Item = (i64, i64, &Sample)> {
        let ends = self.samples.iter().skip(1).map(|(at, _)| *at).chain(std::iter::once(self.until));
        self.samples
            .iter()
            .zip(ends)
            .map(|((at, sample), end)| (*at, end.min(at.saturating_add(GAP)), sample))
    }

    /// As JSON.
    pub(crate) fn value(&self) -> Value {
        let sample = |(at, sample): &(i64, Sample)| {
            let mut value = json!(sample);
            if let Some(object) = value.as_object_mut() {
                object.insert("at".into(), json!(words::time(*at)));
            }
            value
        };
        json!({
            "apiVersion": API_VERSION, "kind": "VmHistory", "vm": self.vm,
            "since": words::time(self.since), "until": words::time(self.until),
            "summary": summary::Summary::of(self),
            "entries": self.entries,
            "samples": self.samples.iter().map(sample).collect::<Vec<_>>(),
        })
    }
}
