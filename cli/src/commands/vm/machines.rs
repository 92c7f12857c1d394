//! Finding virtual machines, with an error if there are none.

use std::time::Duration;

use kube::api::{Api, ListParams};
use neonvm_api::VirtualMachine;

use crate::args::vm::NamespaceArgs;
use crate::connect::Connection;
use crate::error::{Code, Error, Result};
use crate::settings::Settings;

/// Virtual machines of one namespace.
pub(in crate::commands) struct Machines {
    pub(in crate::commands) connection: Connection,
    pub(in crate::commands) namespace: String,
}

impl Machines {
    pub(in crate::commands) async fn open(settings: &Settings, place: &NamespaceArgs) -> Result<Self> {
        let connection = Connection::open(settings, &place.access).await?;
        let namespace = place.namespace.clone().unwrap_or_else(|| connection.namespace().to_owned());
        Ok(Self { connection, namespace })
    }

    pub(in crate::commands) fn api(&self) -> Api<VirtualMachine> {
        Api::namespaced(self.connection.client(), &self.namespace)
    }

    /// The machine of this name; else exit code 3, with the name that may have been meant.
    pub(in crate::commands) async fn get(&self, name: &str) -> Result<VirtualMachine> {
        let api = self.api();
        let attempt = format!("cannot get VM {name:?}");
        match self.connection.within(&attempt, api.get_opt(name)).await? {
            Some(machine) => Ok(machine),
            None => Err(self.not_found(name).await),
        }
    }

    /// The error about a machine that does not exist.
    pub(super) async fn not_found(&self, name: &str) -> Error {
        let error =
            Error::new(Code::NotFound, format!("VM {name:?} not found in namespace {:?}", self.namespace));
        let list = self.connection.within("", self.api().list_metadata(&ListParams::default())).await;
        let names = list.map(|list| list.items).unwrap_or_default();
        let names: Vec<String> = names.into_iter().filter_map(|item| item.metadata.name).collect();
        match nearest(name, &names) {
            Some(meant) => error.hint(format!("did you mean {meant:?}?")),
            None => error.hint(format!("list the VMs: neonctl vm list -n {}", self.namespace)),
        }
    }

    /// The pod in which the machine runs.
    pub(super) fn pod(&self, machine: &VirtualMachine) -> Result<String> {
        let name = machine.metadata.name.as_deref().unwrap_or_default();
        match machine.status.as_ref().map(|status| status.pod_name.as_str()).filter(|pod| !pod.is_empty()) {
            Some(pod) => Ok(pod.to_owned()),
            None => Err(Error::new(Code::Conflict, format!("{name} is not running: it has no pod"))
                .hint(format!("see why: neonctl vm describe {name} -n {}", self.namespace))),
        }
    }
}

/// Name of a machine.
pub(in crate::commands) fn name_of(machine: &VirtualMachine) -> &str {
    machine.metadata.name.as_deref().unwrap_or_default()
}

/// The name that was probably meant: one that differs in at most a third of its characters.
pub(in crate::commands) fn nearest(name: &str, known: &[String]) -> Option<String> {
    let distances = known.iter().map(|other| (distance(name, other), other));
    let (distance, other) = distances.min()?;
    (distance <= name.chars().count().max(3) / 3).then(|| other.clone())
}

/// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: [Vec<usize>; 3] = [Vec::new(), Vec::new(), (0..=other.len()).collect()];
    for (i, a) in one.iter().enumerate() {
        rows.rotate_left(1);
        let [before, last, row] = &mut rows;
        row.clear();
        row.push(i + 1);
        for (j, b) in other.iter().enumerate() {
            let of = |row: &[usize], index: usize| row.get(index).copied().unwrap_or(usize::MAX - 1);
            let mut best = (of(last, j) + usize::from(a != b)).min(of(last, j + 1) + 1).min(of(row, j) + 1);
            let swapped = i > 0 && j > 0 && one.get(i - 1) == Some(b) && other.get(j - 1) == Some(a);
            if swapped {
                best = best.min(of(before, j - 1) + 1);
            }
            row.push(best);
        }
    }
    rows[2].last().copied().unwrap_or_default()
}

/// A time that a person wrote, such as `30s`.
pub(in crate::commands) fn duration(flag: &str, text: &str) -> Result<Duration> {
    crate::settings::duration(text).ok_or_else(|| {
        Error::new(Code::Usage, format!("--{flag}: {text:?} is not a duration"))
            .hint("use a duration such as 500ms, 30s or 5m")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_was_meant() {
        let known: Vec<String> = ["pg-main", "pg-dev", "web-1"].map(str::to_owned).into();
        assert_eq!(nearest("pg-mian", &known).as_deref(), Some("pg-main"));
        assert_eq!(nearest("web1", &known).as_deref(), Some("web-1"));
        assert_eq!(nearest("database", &known), None);
        assert_eq!(nearest("x", &[]), None);
        assert_eq!((distance("", "abc"), distance("abc", ""), distance("ab", "ba")), (3, 3, 1));
    }
}
