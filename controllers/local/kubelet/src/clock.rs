//! The time; a jump of the host's clock does not end or prolong a grace period.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use neonvm_core_kubelet::Millis;

/// Milliseconds since 1970 by the clock as it was at start.
pub(crate) fn now() -> Millis {
    static START: OnceLock<(Instant, Millis)> = OnceLock::new();
    let (start, millis) = START.get_or_init(|| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        (Instant::now(), u64::try_from(since.as_millis()).unwrap_or(u64::MAX / 2))
    });
    millis.saturating_add(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX / 4))
}

/// Waits until then; for ever if there is no such time.
pub(crate) async fn until(then: Option<Millis>) {
    match then {
        Some(then) => tokio::time::sleep(Duration::from_millis(then.saturating_sub(now()))).await,
        None => std::future::pending().await,
    }
}
