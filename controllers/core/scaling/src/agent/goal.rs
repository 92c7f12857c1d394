//! goal.
