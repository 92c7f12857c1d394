//! What would change the number of replicas, and when other bounds hold.

use neonvm_api::pod_autoscaler::ScalingStrategy;
use neonvm_core_pod_autoscaler::Settings;
use neonvm_core_pod_autoscaler::schedule::Bounds;

use super::super::show::{self, Word};
use super::text::Section;
use super::{Account, Edges};

impl Account<'_> {
    /// From which loads on, and from when on.
    pub(super) fn change(&self) -> Option<Section> {
        let settings = self.settings.as_ref()?;
        let mut lines = Vec::new();
        if settings.strategy != ScalingStrategy::Hpa && self.is_current() {
            let edges = self.edges();
            lines.push(("more", self.more(settings, &edges)));
            lines.push(("fewer", self.fewer(settings, &edges)));
            lines.push(("panic", self.panic(settings, &edges)));
        }
        if let Some(forecast) = &self.status.forecast {
            let asks =
                forecast.desired_replicas.map(|count| format!("; calls for {count}")).unwrap_or_default();
            lines.push(("forecast", format!("{}{asks}", forecast.message)));
        }
        lines.push(("bounds", self.held()));
        lines.push(("next bounds", self.next()));
        Some(Section { title: "what would change the number of replicas".to_owned(), lines })
    }

    /// Whether loads decide at all.
    pub(super) fn is_current(&self) -> bool {
        use Word::{Conflict, Deleting, Failed, Invalid, New};
        !matches!(self.word, New | Invalid | Conflict | Deleting | Failed)
    }

    fn more(&self, settings: &Settings, edges: &[Edges<'_>]) -> String {
        let (min, max) = show::bounds(self.object);
        let current = self.fleet.current;
        if current >= max {
            return format!("nothing: {max} is the upper bound");
        }
        if current == 0 && min > 0 {
            return "set the replicas of the target above 0; a target with 0 replicas is not scaled"
                .to_owned();
        }
        if current < min {
            return format!("any load: the lower bound of {min} requires more");
        }
        let ways: Vec<String> = edges
            .iter()
            .filter_map(|found| {
                let edge = found.up?;
                let least = settings.tuning.activation_scale.min(settings.rates().ceiling(self.fleet));
                let replicas = edge.replicas.max(least).min(max);
                Some(format!("{} above {}: {replicas}", found.metric.name, found.unit.show(edge.load)))
            })
            .collect();
        if ways.is_empty() {
            return match edges.is_empty() {
                true => "no metric has been read".to_owned(),
                false => "not before the requested pods are ready".to_owned(),
            };
        }
        let ceiling = settings.rates().ceiling(self.fleet).min(max);
        let (up, _) = settings.cooldowns();
        let held =
            if up.is_zero() { String::new() } else { format!(", after {} s at this level", up.as_secs()) };
        format!(
            "{}, averaged over {} s; at most {ceiling} in one step{held}",
            ways.join(", or "),
            settings.stable_window
        )
    }

    fn fewer(&self, settings: &Settings, edges: &[Edges<'_>]) -> String {
        let (min, max) = show::bounds(self.object);
        let current = self.fleet.current;
        if current > max {
            return format!("any load: the upper bound of {max} requires fewer");
        }
        if current <= min {
            return format!("nothing: {min} is the lower bound");
        }
        let missing: Vec<&str> = self
            .status
            .current_metrics
            .iter()
            .filter(|metric| metric.desired_replicas.is_none())
            .map(|metric| metric.name.as_str())
            .collect();
        if !missing.is_empty() {
            return format!("not while {} has no value", missing.join(", "));
        }
        let (_, down) = settings.cooldowns();
        let held = if down.is_zero() {
            String::new()
        } else {
            format!(", {} s after the last higher recommendation", down.as_secs())
        };
        let window = settings.stable_window;
        if current == 1 {
            return match settings.tuning.scale_to_zero {
                Some(false) => "nothing: scaling to zero is disabled by its annotation".to_owned(),
                _ => format!("no load at all for {window} s: 0{held}"),
            };
        }
        let ways: Vec<String> = edges
            .iter()
            .filter_map(|found| {
                let edge = found.down?;
                let word = if edge.inclusive { "at most" } else { "below" };
                Some(format!("{} {word} {}", found.metric.name, found.unit.show(edge.load)))
            })
            .collect();
        let replicas = edges.iter().filter_map(|found| Some(found.down?.replicas)).max();
        let Some(replicas) = replicas else { return "no metric has been read".to_owned() };
        let floor = settings.rates().floor(self.fleet).max(min);
        // What is not ready yet carries nothing, so the load must fit those that are.
        let unready = if self.fleet.ready < current {
            format!(", as {} of {current} pods are ready", self.fleet.ready)
        } else {
            String::new()
        };
        format!(
            "{}, averaged over {window} s{unready}: {}; at least {floor} in one step{held}",
            ways.join(", and "),
            replicas.max(min)
        )
    }

    fn panic(&self, settings: &Settings, edges: &[Edges<'_>]) -> String {
        let ways: Vec<String> = edges
            .iter()
            .filter_map(|each| Some(format!("{} above {}", each.metric.name, each.unit.show(each.panic?))))
            .collect();
        if ways.is_empty() {
            return String::new();
        }
        format!(
            "{}, averaged over {} s; then no replica is removed for {} s",
            ways.join(", or "),
            settings.panic_window,
            settings.stable_window
        )
    }

    /// The bounds in force.
    fn held(&self) -> String {
        let (min, max) = show::bounds(self.object);
        let schedule = self.status.scheduled_bounds.as_ref().map(|bounds| bounds.active_schedule.as_str());
        let by = schedule.filter(|name| !name.is_empty());
        format!(
            "{min}..{max} by {}",
            by.map_or_else(|| "the spec".to_owned(), |name| format!("schedule {name}"))
        )
    }

    fn next(&self) -> String {
        let Some((at, Bounds { min, max, schedule, .. })) = &self.next else { return String::new() };
        let seconds = u64::try_from(at.as_second() - self.now.as_second()).unwrap_or(0);
        let by = schedule.as_ref().map_or_else(|| "the spec".to_owned(), |name| format!("schedule {name}"));
        format!(
            "{min}..{max} by {by} from {} UTC, in {}",
            at.strftime("%Y-%m-%d %H:%M"),
            crate::render::span(seconds)
        )
    }
}
