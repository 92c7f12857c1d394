//! What this Kubernetes can do, and its nodes.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::api::{Api, ListParams};
use kube::{Client, Error};

use crate::request::within;

/// First version in which pods are resized in place without anything switched on.
const RESIZES: (u32, u32) = (1, 35);
/// Pause before a request to a server that did not answer is repeated.
const PAUSE: Duration = Duration::from_secs(1);

/// All nodes.
pub(crate) async fn nodes(client: &Client) -> Result<Vec<Node>, Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    // From the server's memory: nodes change rarely, drains list them often, and the scheduler decides about a pod in the end.
    within(nodes.list(&ListParams::default().match_any())).await.map(|list| list.items)
}

/// Whether pods are resized in place here. Waits until the API server answers.
pub(crate) async fn resizes_pods(client: &Client) -> bool {
    loop {
        match within(client.apiserver_version()).await {
            Ok(info) => {
                let able = version(&info).is_none_or(|version| version >= RESIZES);
                if !able {
                    let version = format!("{}.{}", info.major, info.minor);
                    tracing::warn!(
                        version,
                        "this Kubernetes does not resize pods in place: runner pods request nothing"
                    );
                }
                return able;
            }
            Err(error) => tracing::warn!(%error, "the version of the API server cannot be read"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Major and minor version; providers write `36+` for the latter.
fn version(info: &Info) -> Option<(u32, u32)> {
    let number = |text: &str| text.trim_end_matches(|letter: char| !letter.is_ascii_digit()).parse().ok();
    Some((number(&info.major)?, number(&info.minor)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_providers_are_understood() {
        for (major, minor, able) in
            [("1", "34", false), ("1", "35", true), ("1", "36+", true), ("2", "0", true), ("", "", true)]
        {
            let info = Info { major: major.into(), minor: minor.into(), ..Info::default() };
            assert_eq!(version(&info).is_none_or(|version| version >= RESIZES), able, "{major}.{minor}");
        }
    }
}
