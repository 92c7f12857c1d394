//! What must hold.

use std::fmt;

macro_rules! invariants {
    ($($variant:ident $id:literal $name:literal $help:literal,)*) => {
        /// Something that must hold: safety (S) after every event, liveness (L) when faults have been over for a while.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Invariant {
            $(#[doc = $help] $variant,)*
        }

        impl Invariant {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Short, such as `S1`.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id,)* }
            }

            /// In a few words.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// In a sentence.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)* }
            }
        }
    };
}

invariants! {
    Capacity "S1" "no node above capacity by permit"
        "What the VMs of a node have, are to have or may take without asking, and what its other pods request, each divided by its overcommit factor, is at most what the node offers.",
    Permit "S2" "no VM above its permit"
        "A VM is made larger only within a permit, and the scheduler is never sent less than the VM has.",
    OneGuest "S3" "a guest runs on one node"
        "The guest of a VM runs in at most one place, whatever dies while it moves.",
    OneMigration "S4" "one migration per VM, few per node"
        "A VM takes part in one migration at a time, and no more VMs leave a node at once than allowed.",
    Address "S5" "an address has one VM, for life"
        "No address belongs to two VMs, and a VM keeps its address and hardware address for life.",
    Consent "S6" "nothing taken without the guest's consent"
        "CPU and memory are taken away only after the guest agreed to that very amount.",
    Bounds "S7" "sizes within bounds, in whole compute units"
        "A VM grows to at most its upper bound and shrinks to at least its lower one, in whole compute units, or towards a size that a person fixed.",
    Intact "S8" "a move loses nothing and leaves nothing"
        "A guest that continues finds in memory and on its disks what it wrote last; a migration that has ended holds no VM, and a VM is not let go while a runner still moves it.",
    NoStaleWrite "S9" "no change made from an old object"
        "No change is derived from an object older than our own last write to it.",
    Monotonic "S10" "status and counters never fall"
        "The observed generation, the revision reached and the scheduler's counters never fall.",
    Quiet "S11" "nothing done twice without news"
        "A second step without news does nothing.",
    PodSize "S12" "no VM larger than its pod"
        "A VM grows only after the kubelet has reported the limits of its pod in force, and the pod shrinks only after the guest has.",
    Bounded "S13" "queues and retries within their limits"
        "One request at a time for each peer, a pause after each failure, queues within their limits.",
    GoalReached "L1" "each VM reaches its goal, or reports why not"
        "When all is calm, a VM has what its load needs, and not more, or its status has the reason; a full node is no excuse if there is room.",
    Still "L6" "sizes settle"
        "When all is calm and no load changes, neither CPU nor memory of a VM grows again and again after it has shrunk.",
    MigrationEnds "L2" "every migration ends and is cleaned up"
        "When all is calm, every migration reaches an end with a reason, and none that the scheduler made is left after it.",
    Settled "L3" "VMs run once, deletions finish"
        "When all is calm, every VM runs on exactly one node, every deletion has finished, and no pod, lock or port of a move is left.",
    Relieved "L4" "nodes fall below their watermark, or show why not"
        "When all is calm, no node above its watermark has a VM that could go to another node.",
    Placed "L5" "no pod waits while a node fits it"
        "When all is calm, no pod waits although a node has room for it.",
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_an_id_of_its_own() {
        let ids: std::collections::BTreeSet<_> = Invariant::ALL.iter().map(|one| one.id()).collect();
        assert_eq!(ids.len(), Invariant::ALL.len());
    }
}
