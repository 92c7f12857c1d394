//! The sizes of a VM over time, as its status shows them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use tokio::task::JoinHandle;

use super::super::cluster::{machines, typed};

/// CPU of the smallest size.
pub(super) const UNIT: f64 = 0.25;
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Moments at which another size was shown, in CPUs.
type Changes = Vec<(Instant, f64)>;

/// Follows a VM until it is dropped.
pub(super) struct Sizes {
    changes: Arc<Mutex<Changes>>,
    task: JoinHandle<()>,
}

/// What happened in some time.
#[derive(Debug, PartialEq)]
pub(super) struct Window {
    pub(super) grown: u32,
    pub(super) shrunk: u32,
    /// CPUs times seconds, and seconds.
    area: f64,
    seconds: f64,
}

impl Window {
    pub(super) fn changes(&self) -> u32 {
        self.grown + self.shrunk
    }

    /// Size on average, in units of the smallest.
    pub(super) fn mean(&self) -> f64 {
        self.area / self.seconds.max(f64::MIN_POSITIVE) / UNIT
    }
}

impl Sizes {
    pub(super) fn follow(client: &Client, name: &'static str) -> Self {
        let changes = Arc::new(Mutex::new(Changes::new()));
        let (api, seen) = (machines(client), Arc::clone(&changes));
        let task = tokio::spawn(async move {
            loop {
                let size = match api.get(name).await {
                    Ok(object) => typed(&object).ok().and_then(|vm| vm.status?.cpus),
                    Err(_) => None,
                };
                if let Some(size) = size {
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    if seen.last().is_none_or(|(_, last)| *last != size.as_f64()) {
                        seen.push((Instant::now(), size.as_f64()));
                    }
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        Self { changes, task }
    }

    fn all(&self) -> Changes {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For how long the VM has had its smallest size; `None` if it has another.
    pub(super) fn since_smallest(&self) -> Option<Duration> {
        self.all().last().filter(|(_, size)| *size <= UNIT).map(|(at, _)| at.elapsed())
    }

    /// The first growth after `begun`.
    pub(super) fn grown_since(&self, begun: Instant) -> Option<Instant> {
        let all = self.all();
        let pairs = all.iter().zip(all.iter().skip(1));
        pairs
            .filter(|(before, after)| after.0 >= begun && after.1 > before.1)
            .map(|(_, after)| after.0)
            .next()
    }

    /// The size over time relative to the needed one, and the seconds with less than that.
    pub(super) fn against(
        &self,
        begun: Instant,
        length: Duration,
        need: impl Fn(Duration) -> f64,
    ) -> (f64, f64) {
        against(&self.all(), begun, length, need)
    }

    pub(super) fn window(&self, since: Instant, until: Instant) -> Window {
        window(&self.all(), since, until)
    }
}

impl Drop for Sizes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn window(changes: &Changes, since: Instant, until: Instant) -> Window {
    let mut window = Window { grown: 0, shrunk: 0, area: 0.0, seconds: (until - since).as_secs_f64() };
    let mut from: Option<(Instant, f64)> = None;
    for &(at, size) in changes.iter().take_while(|(at, _)| *at <= until) {
        if let Some((begun, before)) = from {
            window.area += before * at.max(since).saturating_duration_since(begun.max(since)).as_secs_f64();
            if at >= since {
                window.grown += u32::from(size > before);
                window.shrunk += u32::from(size < before);
            }
        }
        from = Some((at, size));
    }
    if let Some((begun, size)) = from {
        window.area += size * until.saturating_duration_since(begun.max(since)).as_secs_f64();
    }
    window
}

fn against(
    changes: &Changes,
    begun: Instant,
    length: Duration,
    need: impl Fn(Duration) -> f64,
) -> (f64, f64) {
    let (mut size, mut rest) = (UNIT, changes.iter().peekable());
    let (mut had, mut needed, mut below, mut at) = (0.0, 0.0, 0.0, Duration::ZERO);
    while at < length {
        while let Some((_, next)) = rest.next_if(|(when, _)| *when <= begun + at) {
            size = *next;
        }
        let needs = need(at);
        had += size;
        needed += needs;
        below += if size < needs { LOOK.as_secs_f64() } else { 0.0 };
        at += LOOK;
    }
    (had / f64::max(needed, f64::MIN_POSITIVE), below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_load_needs_is_compared_with_what_it_had() {
        let start = Instant::now();
        let changes = vec![(start, 0.25), (start + Duration::from_secs(15), 0.5)];
        // The second half needs twice as much, and gets it 5 s later.
        let need = |at: Duration| if at < Duration::from_secs(10) { 0.25 } else { 0.5 };
        let (cost, below) = against(&changes, start, Duration::from_secs(20), need);
        assert!((below - 5.0).abs() < 0.01 && (cost - 6.25 / 7.5).abs() < 0.01, "{cost} {below}");
    }

    #[test]
    fn a_window_has_its_changes_and_its_area() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let changes = vec![(at(0), 0.25), (at(10), 0.5), (at(20), 0.25), (at(40), 1.0)];
        let window = window(&changes, at(5), at(25));
        assert_eq!((window.grown, window.shrunk), (1, 1));
        // 5 s of one unit, 10 s of two, 5 s of one.
        assert!((window.mean() - 1.5).abs() < 1e-9, "{window:?}");
        let none = super::window(&changes, at(41), at(51));
        assert_eq!((none.changes(), none.mean()), (0, 4.0));
    }
}
