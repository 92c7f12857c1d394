//! Laws and vectors.
