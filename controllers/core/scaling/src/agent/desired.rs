//! desired.
