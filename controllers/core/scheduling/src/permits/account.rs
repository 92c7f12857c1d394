//! What a pod counts for, and the sums of a node.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{NodeSeen, Noted, Pair, PodSeen};
use crate::Amounts;

/// What a pod counts for on its node; discounted, except `committed`. Sums of nodes have the same shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) reserved: Pair<u128>,
    pub(crate) buffer: Pair<u128>,
    pub(crate) pressure: Pair<u128>,
    pub(crate) accounted: Pair<u128>,
    pub(crate) migrating: Pair<u128>,
    pub(crate) committed: Pair<u128>,
    pub(crate) ordinary: Pair<u128>,
    pub(crate) ignored: Pair<u128>,
    pub(crate) leaving: u64,
}

impl Share {
    pub(crate) fn add(&mut self, other: &Self) {
        self.each(other, Pair::add);
        self.leaving = self.leaving.saturating_add(other.leaving);
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        self.each(other, Pair::subtract);
        self.leaving = self.leaving.saturating_sub(other.leaving);
    }

    fn each(&mut self, other: &Self, f: impl Fn(&mut Pair<u128>, Pair<u128>)) {
        f(&mut self.reserved, other.reserved);
        f(&mut self.buffer, other.buffer);
        f(&mut self.pressure, other.pressure);
        f(&mut self.accounted, other.accounted);
        f(&mut self.migrating, other.migrating);
        f(&mut self.committed, other.committed);
        f(&mut self.ordinary, other.ordinary);
        f(&mut self.ignored, other.ignored);
    }
}

/// An amount divided by an overcommit factor in thousandths, rounded up: never less than what it stands for.
pub(crate) fn discounted(amount: u64, overcommit: u64) -> u128 {
    match overcommit {
        1000 => u128::from(amount),
        0 => u128::from(amount).saturating_mul(1000),
        factor => (u128::from(amount) * 1000).div_ceil(u128::from(factor)),
    }
}

/// The largest amount whose discount fits into `room`.
pub(crate) fn undiscounted(room: u128, overcommit: u64) -> u64 {
    let amount = if overcommit == 1000 { room } else { room.saturating_mul(u128::from(overcommit)) / 1000 };
    u64::try_from(amount).unwrap_or(u64::MAX)
}

impl PodSeen {
    /// What it counts for when its VM has this size; discounted. The overhead is not overcommitted.
    pub(crate) fn counted(&self, size: Pair<u64>) -> Pair<u128> {
        let overcommit = self.vm.as_ref().map_or(Pair::both(1000), |vm| vm.overcommit);
        let beside = self.overhead.map(u128::from);
        let whole = size.with(overcommit, discounted).with(beside, u128::saturating_add);
        whole.max(self.requests.map(u128::from))
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodEntry {
    pub(crate) seen: PodSeen,
    /// Whether its namespace is ignored.
    pub(crate) ignored: bool,
    /// Index of the node it counts on.
    pub(crate) node: Option<usize>,
    /// Since when room is kept for it that the cluster does not show yet.
    pub(crate) tentative: Option<Duration>,
    /// Permitted, without buffer.
    pub(crate) held: Pair<u64>,
    /// What it may hold beyond `held`.
    pub(crate) buffer: Pair<u64>,
    /// Requested and not granted.
    pub(crate) pressure: Pair<u64>,
    /// Whether `held` is what its agent holds; not so before the agent's first request.
    pub(crate) known: bool,
    /// Since when it is not.
    pub(crate) unknown: Option<Duration>,
    /// Whether its pod is the source of a running migration.
    pub(crate) migrating: bool,
    /// Since when a migration was requested and is not observed yet.
    pub(crate) leaving: Option<Duration>,
    /// Whether a migration that was requested is observed and is not over.
    pub(crate) queued: bool,
    /// Before this time it is not migrated again.
    pub(crate) rest_until: Duration,
    /// Last load average.
    pub(crate) load: Option<f32>,
    /// Last request, and its compute unit.
    pub(crate) request: Option<(Duration, Noted)>,
    /// The permit noted in its VM, as last observed.
    pub(crate) noted: Option<Noted>,
    /// Tries to note it that failed.
    pub(crate) tries: u32,
    /// When the note was last tried.
    pub(crate) tried: Option<Duration>,
    /// When the note is due; the key in the queue.
    pub(crate) due: Option<Duration>,
    /// Whether a note is on its way.
    pub(crate) writing: bool,
}

impl PodEntry {
    pub(crate) fn overcommit(&self) -> Pair<u64> {
        self.seen.vm.as_ref().map_or(Pair::both(1000), |vm| vm.overcommit)
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.is_about_to_leave() || self.queued
    }

    /// Whether it is not to grow any more. A VM whose migration waits for long may grow.
    pub(crate) fn is_about_to_leave(&self) -> bool {
        self.migrating || self.leaving.is_some()
    }

    /// Whether it counts for something that ends with time.
    pub(crate) fn is_pending(&self) -> bool {
        self.tentative.is_some() || self.leaving.is_some()
    }

    /// What counts against the node, with its buffer; not discounted.
    pub(crate) fn reserved(&self) -> Pair<u64> {
        self.solid().max(self.held.with(self.buffer, u64::saturating_add))
    }

    /// The same without its buffer.
    pub(crate) fn solid(&self) -> Pair<u64> {
        self.held.max(self.seen.usage)
    }

    pub(crate) fn share(&self) -> Share {
        let mut share = Share::default();
        if self.seen.ended {
            return share;
        }
        let reserved = self.reserved();
        let counted = self.seen.counted(reserved);
        if self.ignored {
            share.ignored = counted;
            return share;
        }
        share.reserved = counted;
        let beside = self.seen.overhead.map(u128::from);
        let committed = reserved.map(u128::from).with(beside, u128::saturating_add);
        share.committed = committed.max(self.seen.requests.map(u128::from));
        if self.seen.vm.is_none() {
            share.ordinary = counted;
            return share;
        }
        let solid = if self.buffer == Pair::default() {
            counted
        } else {
            let solid = self.seen.counted(self.solid());
            share.buffer = counted.with(solid, u128::saturating_sub);
            solid
        };
        if self.pressure != Pair::default() {
            share.pressure = self.pressure.with(self.overcommit(), discounted);
        }
        if self.is_leaving() {
            share.leaving = 1;
            share.migrating = counted;
            share.accounted = solid.with(share.pressure, u128::saturating_add);
        }
        share
    }
}

/// A node, and the sums of its pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeEntry {
    pub(crate) name: String,
    /// `None` while pods are bound to it and it was not seen.
    pub(crate) seen: Option<NodeSeen>,
    pub(crate) watermark: Pair<u64>,
    pub(crate) sums: Share,
    pub(crate) other: Amounts,
    pub(crate) pods: BTreeSet<usize>,
    /// Before this no migrations are planned again.
    pub(crate) plan_at: Duration,
}

impl NodeEntry {
    pub(crate) fn total(&self) -> Pair<u64> {
        self.seen.as_ref().map_or(Pair::default(), |seen| seen.total)
    }

    /// Whether a VM should leave: the permits above the watermark plus the denied requests exceed what the VMs that are
    /// leaving will free. Formula of v0.31.
    pub(crate) fn has_too_much_pressure(&self) -> bool {
        is_too_much(&self.sums, self.watermark)
    }
}

/// See [`NodeEntry::has_too_much_pressure`].
pub(crate) fn is_too_much(sums: &Share, watermark: Pair<u64>) -> bool {
    let watermark = watermark.map(u128::from);
    if sums.reserved.cpu <= watermark.cpu && sums.reserved.mem < watermark.mem {
        return false;
    }
    let of = |reserved: u128, watermark: u128, pressure: u128, accounted: u128, buffer: u128| {
        reserved.saturating_sub(watermark).saturating_add(pressure)
            > accounted.saturating_add(buffer).saturating_add(watermark.saturating_sub(reserved))
    };
    of(sums.reserved.cpu, watermark.cpu, sums.pressure.cpu, sums.accounted.cpu, sums.buffer.cpu)
        || of(sums.reserved.mem, watermark.mem, sums.pressure.mem, sums.accounted.mem, sums.buffer.mem)
}

/// A share of an amount, rounded down.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative; too large saturates"
)]
pub(crate) fn fraction(total: u64, watermark: f64) -> u64 {
    // 0.9 × 10 must be 9 despite rounding errors.
    ((total as f64 * watermark + 1e-6) as u64).min(total)
}
