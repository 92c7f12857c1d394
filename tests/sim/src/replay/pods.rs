//! Pods of a workload that is replayed: ordered, after a while ready, taken away at once.

use std::collections::VecDeque;

#[derive(Clone, Debug, Default)]
pub(super) struct Pods {
    ready: i32,
    /// When each of the others will be ready; ascending.
    starting: VecDeque<u32>,
}

impl Pods {
    pub(super) fn new(ready: i32) -> Self {
        Self { ready: ready.max(0), starting: VecDeque::new() }
    }

    pub(super) const fn ready(&self) -> i32 {
        self.ready
    }

    pub(super) fn ordered(&self) -> i32 {
        self.ready.saturating_add(i32::try_from(self.starting.len()).unwrap_or(i32::MAX))
    }

    /// Those whose time has come are ready.
    pub(super) fn ripen(&mut self, second: u32) {
        while self.starting.pop_front_if(|at| *at <= second).is_some() {
            self.ready = self.ready.saturating_add(1);
        }
    }

    /// Orders so many; new ones are ready at `at`. Those that are not ready yet go first, as with Kubernetes.
    pub(super) fn order(&mut self, replicas: i32, at: u32) {
        while self.ordered() < replicas {
            self.starting.push_back(at);
        }
        while self.ordered() > replicas.max(0) {
            if self.starting.pop_back().is_none() {
                self.ready = replicas.max(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_start_ripen_and_go() {
        let mut pods = Pods::new(2);
        pods.order(5, 30);
        assert_eq!((pods.ordered(), pods.ready()), (5, 2));
        pods.ripen(29);
        assert_eq!(pods.ready(), 2);
        pods.order(4, 40);
        assert_eq!((pods.ordered(), pods.ready()), (4, 2));
        pods.ripen(30);
        assert_eq!((pods.ordered(), pods.ready()), (4, 4));
        pods.order(1, 50);
        assert_eq!((pods.ordered(), pods.ready()), (1, 1));
        pods.order(0, 50);
        assert_eq!((pods.ordered(), pods.ready()), (0, 0));
    }
}
