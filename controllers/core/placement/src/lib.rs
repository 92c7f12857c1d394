//! Which node a pod fits on and which is best, as pure functions.
