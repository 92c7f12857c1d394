//! Limits of disks.

use std::collections::BTreeSet;

use neonvm_types::{Bytes, Quantity};

use crate::VirtualMachineSpec;
use crate::field_error::Faults;
use crate::virtual_machine::{BANDWIDTH, BURST_SECONDS, DiskLimit, DiskLimitBurst, IOPS};

pub(super) fn disk_limits(spec: &VirtualMachineSpec, faults: &mut Faults) {
    let mut names = BTreeSet::new();
    for (index, limit) in spec.disk_limits.iter().enumerate() {
        let field = format!("spec.diskLimits[{index}]");
        let name = &limit.disk;
        faults.require(
            names.insert(name),
            format!("{field}.disk"),
            format!("{name} is there twice; put its limits together"),
        );
        faults.require(
            spec.can_limit(name),
            format!("{field}.disk"),
            format!(
                "{name:?} is no emptyDisk of spec.disks and none on a claim; name one, or rootdisk, or remove the limit"
            ),
        );
        faults.require(
            limit.iops.is_some() || limit.bandwidth.is_some(),
            &field,
            "must have iops, bandwidth or both; remove it to limit nothing",
        );
        iops(limit.iops, &format!("{field}.iops"), faults);
        bandwidth(limit.bandwidth, &format!("{field}.bandwidth"), faults);
        if let Some(burst) = &limit.burst {
            bursts(limit, burst, &format!("{field}.burst"), faults);
        }
    }
}

fn iops(rate: Option<u32>, field: &str, faults: &mut Faults) {
    let (least, most) = IOPS;
    faults.require(
        rate.is_none_or(|rate| (least..=most).contains(&rate)),
        field,
        format!("must be between {least} and {most} requests a second"),
    );
}

fn bandwidth(rate: Option<Quantity>, field: &str, faults: &mut Faults) {
    let (least, most) = BANDWIDTH;
    let fits = |rate| Bytes::try_from(rate).is_ok_and(|rate| (least..=most).contains(&rate));
    faults.require(
        rate.is_none_or(fits),
        field,
        format!("must be between {least} and {most} a second; write for example 50Mi"),
    );
}

fn bursts(limit: &DiskLimit, burst: &DiskLimitBurst, field: &str, faults: &mut Faults) {
    iops(burst.iops, &format!("{field}.iops"), faults);
    bandwidth(burst.bandwidth, &format!("{field}.bandwidth"), faults);
    faults.require(
        burst.iops.is_some() || burst.bandwidth.is_some(),
        field,
        "must have iops, bandwidth or both; remove it to have no burst",
    );
    let above = "must be above the limit without burst, which must be set; raise it or set the limit";
    faults.require(
        burst.iops.is_none_or(|burst| limit.iops.is_some_and(|limit| limit < burst)),
        format!("{field}.iops"),
        above,
    );
    faults.require(
        burst.bandwidth.is_none_or(|burst| limit.bandwidth.is_some_and(|limit| limit < burst)),
        format!("{field}.bandwidth"),
        above,
    );
    faults.require(
        (1..=BURST_SECONDS).contains(&burst.seconds),
        format!("{field}.seconds"),
        format!("must be between 1 and {BURST_SECONDS}"),
    );
}
