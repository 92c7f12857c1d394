//! Events and certificate requests go after a time, as on a real cluster.

use serde_json::Value;

use crate::builtin::certificate::GROUP;
use crate::context::Context;
use crate::engine::Engine;
use crate::object;
use crate::store::key_of;

/// Most events kept after their last change: one hour, as real servers do.
const EVENT_SECONDS: i64 = 3600;

impl Engine {
    /// Removes events and certificate requests that have expired; the seconds until the next one is due.
    pub fn expire(&mut self, context: &Context) -> Option<i64> {
        let events = self.expire_each("", "events", context, |event| {
            let times =
                ["lastTimestamp", "eventTime", "series.lastObservedTime", "metadata.creationTimestamp"];
            latest(event, &times).map(|latest| latest + EVENT_SECONDS)
        });
        let requests = self.expire_each(GROUP, "certificatesigningrequests", context, |request| {
            let decided = object::at(request, "status.conditions").and_then(Value::as_array);
            let decided = decided.into_iter().flatten().filter_map(|c| latest(c, &["lastUpdateTime"])).max();
            let since = decided.or_else(|| latest(request, &["metadata.creationTimestamp"]));
            since.map(|since| since + crate::signing::life(request))
        });
        events.into_iter().chain(requests).min()
    }

    fn expire_each(
        &mut self,
        group: &str,
        plural: &str,
        context: &Context,
        due: impl Fn(&Value) -> Option<i64>,
    ) -> Option<i64> {
        let kind = self.kinds.resource(group, "v1", plural).cloned()?;
        let now = context.now.as_second();
        let mut next: Option<i64> = None;
        for object in self.values(&kind.table) {
            // Without any time it counts from now on.
            let due = due(&object).unwrap_or(now + EVENT_SECONDS);
            if due <= now {
                let key = key_of(object::namespace(&object), object::name(&object));
                self.remove(&kind, &key, object);
            } else {
                next = Some(next.map_or(due - now, |n| n.min(due - now)));
            }
        }
        next
    }
}

fn latest(object: &Value, paths: &[&str]) -> Option<i64> {
    let times = paths.iter().filter_map(|path| object::text_at(object, path).parse::<jiff::Timestamp>().ok());
    times.map(jiff::Timestamp::as_second).max()
}
