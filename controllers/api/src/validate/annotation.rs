//! Annotations that tune a pod autoscaler. Upstream reads them in random order and stops at the first bad one; here a
//! bad one is refused.

use std::collections::BTreeMap;

use crate::{field_error::Faults, pod_autoscaler::Tuning};

pub(super) fn annotations(annotations: &BTreeMap<String, String>, faults: &mut Faults) {
    if let Err(found) = Tuning::parse(annotations) {
        found.into_iter().for_each(|fault| faults.push(fault.path, fault.message));
    }
}
