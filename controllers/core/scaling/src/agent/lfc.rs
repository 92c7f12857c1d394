//! lfc.
