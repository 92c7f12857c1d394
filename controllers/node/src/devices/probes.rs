//! Answers to the kubelet's probes.

use std::sync::Arc;

use http::StatusCode;
use neonvm_kit::http::{FullResponse, text};

use crate::devices::plugin::Plugin;

/// Alive while the process answers, since the end of a task ends it; ready when every resource is registered with the
/// kubelet, so that pods that request them are placed on this node.
pub(crate) fn answer(path: &str, plugins: &[Arc<Plugin>]) -> FullResponse {
    let missing: Vec<_> = plugins
        .iter()
        .filter(|plugin| !plugin.is_registered())
        .map(|plugin| plugin.device.resource())
        .collect();
    if path != "/readyz" || missing.is_empty() {
        return text(StatusCode::OK, "text/plain", "ok\n");
    }
    let why = format!("not registered with the kubelet: {}\n", missing.join(", "));
    text(StatusCode::SERVICE_UNAVAILABLE, "text/plain", why)
}
