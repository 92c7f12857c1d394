//! The time of day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use neonvm_types::Timestamp;

/// 1970-01-01.
const EPOCH: Timestamp = match Timestamp::from_unix(0) {
    Some(time) => time,
    // 1970 lies between the years 0 and 9999.
    None => unreachable!(),
};

/// The time of day, in seconds.
pub(crate) fn now() -> Timestamp {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    i64::try_from(seconds).ok().and_then(Timestamp::from_unix).unwrap_or(EPOCH)
}

/// How long it is until a time.
pub(crate) fn until(at: Timestamp) -> Duration {
    let seconds = u64::try_from(at.unix().saturating_sub(now().unix())).unwrap_or(0);
    // Whole seconds are compared; a little more, so that the second has surely come.
    Duration::from_secs(seconds) + Duration::from_millis(20)
}
