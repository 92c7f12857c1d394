//! What became of the choice of a node.

use std::fmt;

use crate::Reason;

/// What became of a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The pod goes there.
    Node(String),
    /// No node will have it: each with its reason, by name.
    Nowhere(Vec<(String, Reason)>),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "node {name}"),
            Self::Nowhere(reasons) if reasons.is_empty() => f.write_str("there are no nodes"),
            Self::Nowhere(reasons) => {
                write!(f, "0/{} nodes fit: ", reasons.len())?;
                for (index, (name, reason)) in reasons.iter().enumerate() {
                    write!(f, "{}{name} {reason}", if index == 0 { "" } else { "; " })?;
                }
                Ok(())
            }
        }
    }
}
