//! Which writes are served while the disk is full: those that free room, those that finish what is being deleted, those
//! that keep the components alive that do that, and those that write nothing.

use neonvm_apiserver_engine::request::{Method, Query, Target};
use neonvm_apiserver_engine::status::ApiError;

use crate::disk::Full;

/// Groups with objects that are answers and are not stored.
const ANSWERS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// Whether a write is served. `is_ending`: the object that it names is being deleted already.
pub(crate) fn is_served(
    method: Method,
    path: &str,
    query: &str,
    is_ending: impl FnOnce(&Target) -> bool,
) -> bool {
    // What is no resource is refused, or answered without a write, where it is routed.
    let Some(target) = Target::parse(path) else { return true };
    if Query::parse(query).text("dryRun") == "All" {
        return true;
    }
    match method {
        Method::Get | Method::Delete | Method::Other => true,
        Method::Post => {
            matches!(target.subresource.as_str(), "eviction" | "token")
                || ANSWERS.contains(&target.group.as_str())
        }
        // A service without its lease would end, and with it the deletions that it has to finish. A lease does not grow.
        Method::Put | Method::Patch => target.resource == "leases" || is_ending(&target),
    }
}

pub(crate) fn refusal(full: &Full) -> ApiError {
    ApiError::plain(507, "InsufficientStorage", format!("{full}; free some room, or delete objects"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(method: Method, path: &str, is_ending: bool) -> bool {
        is_served(method, path, "", |_| is_ending)
    }

    #[test]
    fn what_frees_room_is_served_and_what_takes_it_is_not() {
        let pods = "/api/v1/namespaces/default/pods";
        let vms = "/apis/vm.neon.tech/v1/namespaces/default/virtualmachines/a";
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/scheduler";
        for (method, path, is_ending) in [
            (Method::Delete, vms, false),
            (Method::Delete, pods, false),
            (Method::Post, "/api/v1/namespaces/default/pods/a/eviction", false),
            (Method::Post, "/api/v1/namespaces/default/serviceaccounts/a/token", false),
            (Method::Post, "/apis/authorization.k8s.io/v1/subjectaccessreviews", false),
            (Method::Put, lease, false),
            // Finalizers are taken away by an update.
            (Method::Patch, vms, true),
            (Method::Put, "/api/v1/namespaces/old/finalize", true),
        ] {
            assert!(served(method, path, is_ending), "{path}");
        }
        for (method, path) in
            [(Method::Post, pods), (Method::Post, lease), (Method::Patch, vms), (Method::Put, vms)]
        {
            assert!(!served(method, path, false), "{path}");
        }
        assert!(is_served(Method::Post, pods, "dryRun=All", |_| false));
    }
}
