//! What is wrong with an object, for admission webhooks and for the CLI.
//!
//! Each function returns all faults, in a fixed order, empty if there are none. It expects an object that has been
//! normalised and given its defaults. Checks that a schema or its rules make are made here again, because these messages
//! are better and a client can have them without a server.

mod annotation;
mod ip_pool;
mod migration;
mod pod_autoscaler;
mod schedule;
mod virtual_machine;

pub use ip_pool::ip_pool;
pub use migration::{migration_create, migration_policy, migration_update};
pub use pod_autoscaler::pod_autoscaler;
pub use virtual_machine::{virtual_machine_create, virtual_machine_update, virtual_machine_warnings};

/// Whether a text is a DNS label: lower-case letters, digits and inner hyphens, at most 63.
fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_label_of_any_length(text)
}

/// Whether a text is a DNS subdomain, as names of objects are: labels with dots between them, at most 253 characters.
fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label_of_any_length)
}

fn is_label_of_any_length(text: &str) -> bool {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.chars().all(|c| good(c) || c == '-') && text.starts_with(good) && text.ends_with(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_labels() {
        for good in ["a", "a-b", "0", "x".repeat(63).as_str()] {
            assert!(is_dns_label(good), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "é", "x".repeat(64).as_str()] {
            assert!(!is_dns_label(bad), "{bad}");
        }
    }

    #[test]
    fn dns_subdomains() {
        for good in ["a", "a.b-c.0", "x".repeat(253).as_str()] {
            assert!(is_dns_subdomain(good), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", "A", "a_b", "a.-b", "x".repeat(254).as_str()] {
            assert!(!is_dns_subdomain(bad), "{bad}");
        }
    }
}
