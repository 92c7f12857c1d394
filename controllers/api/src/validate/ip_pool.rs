//! `IPPool`: a range, and allocations inside it.

use std::net::IpAddr;

use crate::{FieldError, IPPool, field_error::Faults};

/// All faults of a pool.
#[must_use]
pub fn ip_pool(pool: &IPPool) -> Vec<FieldError> {
    let mut faults = Faults::default();
    let size = addresses(&pool.spec.range);
    faults.require(
        size.is_some(),
        "spec.range",
        format!("{:?} is not a range of addresses; write for example 10.100.0.0/16", pool.spec.range),
    );
    for (offset, allocation) in &pool.spec.allocations {
        let field = format!("spec.allocations[{offset}]");
        // The text must be canonical, so that one address has one key.
        let number = offset.parse::<u128>().ok().filter(|number| number.to_string() == *offset);
        match (number, size) {
            (None, _) => faults.push(&field, "the key must be a decimal offset from the first address"),
            (Some(number), Some(last)) if number > last => {
                faults.push(&field, format!("lies outside the range; the last offset is {last}"));
            }
            _ => {}
        }
        let parts = allocation.id.split_once('/');
        faults.require(
            parts.is_some_and(|(namespace, name)| {
                !namespace.is_empty() && !name.is_empty() && !name.contains('/')
            }),
            format!("{field}.id"),
            format!("{:?} must be <namespace>/<machine>", allocation.id),
        );
    }
    faults.finish()
}

/// The last offset of a range in CIDR notation.
fn addresses(range: &str) -> Option<u128> {
    let (address, prefix) = range.split_once('/')?;
    let bits = match address.parse::<IpAddr>().ok()? {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    };
    let prefix: u32 = prefix.parse().ok().filter(|length| *length <= bits)?;
    Some(u128::MAX.checked_shr(128 - (bits - prefix)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{IPPoolSpec, ip_pool::IpAllocation};

    fn errors(range: &str, offset: &str, id: &str) -> Vec<String> {
        let allocation = IpAllocation { id: id.into(), podref: String::new() };
        let allocations = BTreeMap::from([(offset.to_owned(), allocation)]);
        let pool = IPPool::new("pool", IPPoolSpec { range: range.into(), allocations });
        ip_pool(&pool).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn messages() {
        let none: [&str; 0] = [];
        assert_eq!(errors("10.100.0.0/16", "65535", "ns/vm"), none);
        assert_eq!(errors("fd00::/64", "65536", "ns/vm"), none);
        assert_eq!(errors("10.0.0.1/32", "0", "ns/vm"), none);
        let outside = "spec.allocations[65536]: lies outside the range; the last offset is 65535";
        assert_eq!(errors("10.100.0.0/16", "65536", "ns/vm"), [outside]);
        for range in ["", "10.100.0.0", "10.100.0.0/33", "10.0.0/8", "fd00::/129", "x/8"] {
            let text =
                format!("spec.range: {range:?} is not a range of addresses; write for example 10.100.0.0/16");
            assert_eq!(errors(range, "1", "ns/vm"), [text]);
        }
        for offset in ["-1", "01", "0x1", "", "+1"] {
            let text = format!(
                "spec.allocations[{offset}]: the key must be a decimal offset from the first address"
            );
            assert_eq!(errors("10.100.0.0/16", offset, "ns/vm"), [text]);
        }
        for id in ["vm", "/vm", "ns/", "a/b/c"] {
            let text = format!("spec.allocations[1].id: {id:?} must be <namespace>/<machine>");
            assert_eq!(errors("10.100.0.0/16", "1", id), [text]);
        }
    }
}
