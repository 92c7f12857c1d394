//! The one static program inside every VM.
