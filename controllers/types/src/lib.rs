//! Units and wire protocols.
