//! The agent's decisions about one VM.
