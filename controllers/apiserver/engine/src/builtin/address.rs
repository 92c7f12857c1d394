//! Addresses and ranges of addresses, as several kinds have them.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::json;

use crate::field::FieldError;

/// The address that a text is; refused if it is none.
pub(super) fn check(text: &str, field: &str, errors: &mut Vec<FieldError>) -> Option<IpAddr> {
    let parsed = text.parse().ok();
    if parsed.is_none() {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(FieldError::invalid(field, &json!(text), detail));
    }
    parsed
}

/// The range that a text is; refused if it is none.
pub(super) fn check_range(text: &str, field: &str, errors: &mut Vec<FieldError>) -> Option<IpNet> {
    let parsed = text.parse().ok();
    if parsed.is_none() {
        let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        errors.push(FieldError::invalid(field, &json!(text), detail));
    }
    parsed
}

/// Refuses an address that leads to no other host.
pub(super) fn check_special(address: IpAddr, field: &str, errors: &mut Vec<FieldError>) {
    let value = json!(address.to_string());
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(field, &value, detail));
    let (local, multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets().starts_with(&[224, 0, 0])),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    if address.is_unspecified() {
        refuse("may not be unspecified (0.0.0.0 or ::)");
    }
    if address.is_loopback() {
        refuse("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if local {
        refuse("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        refuse("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}
