//! The first port on which the processes of a pod may listen without rights: a parameter of the pod's network, as Kubernetes lets a pod set it.

use std::io;

use k8s_openapi::api::core::v1::Pod;

use super::NodeNetwork;
use crate::sys;

const PARAMETER: &str = "net.ipv4.ip_unprivileged_port_start";
const FILE: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

/// What the pod sets, if it does.
fn wanted(pod: &Pod) -> Option<&str> {
    let context = pod.spec.as_ref()?.security_context.as_ref()?;
    let parameter = context.sysctls.iter().flatten().find(|one| one.name == PARAMETER)?;
    Some(parameter.value.as_str())
}

impl NodeNetwork {
    /// Lets a pod listen on the ports that its object names, if it has a network of its own.
    pub(crate) async fn free_ports(&self, uid: &str, pod: &Pod) -> io::Result<()> {
        let (Some(value), Some(namespace)) = (wanted(pod).map(str::to_owned), self.enter(uid)?) else {
            return Ok(());
        };
        let set = move || std::fs::write(FILE, value);
        tokio::task::spawn_blocking(move || sys::in_network(namespace, set))
            .await
            .map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_this_parameter_counts() {
        let pod = |name: &str| -> Pod {
            let sysctls = json!([{ "name": name, "value": "80" }]);
            serde_json::from_value(
                json!({ "spec": { "containers": [], "securityContext": { "sysctls": sysctls } } }),
            )
            .unwrap()
        };
        assert_eq!(wanted(&pod(PARAMETER)), Some("80"));
        assert_eq!((wanted(&pod("kernel.shm_rmid_forced")), wanted(&Pod::default())), (None, None));
    }
}
