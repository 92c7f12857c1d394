//! The Prometheus text format, version 0.0.4, as far as it is needed.
