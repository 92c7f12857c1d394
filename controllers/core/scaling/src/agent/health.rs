//! health.
