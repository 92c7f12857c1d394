//! Disks on volumes that become larger while the VM runs. Each request is carried out once; one that failed is made again by the
//! controller, which has the pause between two attempts.

use std::collections::{BTreeMap, BTreeSet};

use neonvm_types::Bytes;
use neonvm_types::runner_protocol::{DiskRequest, Problem, ProblemReason};

use super::Action;

#[derive(Clone, Debug, Default)]
pub(crate) struct Disks {
    /// What each disk uses of its volume.
    sizes: BTreeMap<String, Bytes>,
    /// Disks that grow now.
    growing: BTreeSet<String>,
    /// What was requested of them meanwhile.
    next: BTreeMap<String, Bytes>,
    problems: BTreeMap<String, String>,
}

impl Disks {
    /// The disks that the VM has.
    pub(crate) fn found(&mut self, sizes: BTreeMap<String, Bytes>) {
        self.sizes = sizes;
    }

    pub(crate) fn check(&self, DiskRequest { disk, size }: &DiskRequest) -> Result<(), String> {
        match self.sizes.get(disk) {
            None => Err(format!("the VM has no disk {disk:?} on a claim that it writes")),
            Some(now) if size < now => Err(format!("disk {disk} uses {now}, and does not shrink to {size}")),
            Some(_) => Ok(()),
        }
    }

    /// The order that is due. A disk that grows already gets the next one when that is over.
    pub(crate) fn ask(&mut self, request: DiskRequest) -> Option<Action> {
        let now = self.sizes.get(&request.disk)?;
        if request.size <= *now {
            return None;
        }
        if !self.growing.insert(request.disk.clone()) {
            self.next.insert(request.disk, request.size);
            return None;
        }
        Some(Action::GrowDisk(request))
    }

    /// `later`: why the file system grows at the next start only.
    pub(crate) fn grown(
        &mut self,
        DiskRequest { disk, size }: DiskRequest,
        later: Option<String>,
    ) -> Option<Action> {
        self.growing.remove(&disk);
        if let Some(now) = self.sizes.get_mut(&disk) {
            *now = (*now).max(size);
        }
        self.problems.remove(&disk);
        self.problems.extend(later.map(|why| (disk.clone(), why)));
        let size = self.next.remove(&disk)?;
        self.ask(DiskRequest { disk, size })
    }

    pub(crate) fn failed(&mut self, DiskRequest { disk, .. }: DiskRequest, why: String) {
        self.growing.remove(&disk);
        self.next.remove(&disk);
        self.problems.insert(disk, why);
    }

    pub(crate) fn are_growing(&self) -> bool {
        !self.growing.is_empty()
    }

    pub(crate) fn sizes(&self) -> &BTreeMap<String, Bytes> {
        &self.sizes
    }

    /// Without sizes in the text: each change of it is a write to the API server.
    pub(crate) fn problem(&self) -> Option<Problem> {
        let all = self.problems.iter().map(|(disk, why)| format!("disk {disk}: {why}"));
        let message = all.collect::<Vec<_>>().join("; ");
        (!message.is_empty()).then_some(Problem { reason: ProblemReason::DiskNotGrown, message })
    }
}
