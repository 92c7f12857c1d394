//! What became of the choice of a node.

use std::fmt;

use crate::Reason;

/// Nodes that a text names at most. It is written to each pod that waits, and to its VM.
const SHOWN: usize = 10;

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
                for (index, (name, reason)) in reasons.iter().take(SHOWN).enumerate() {
                    write!(f, "{}{name} {reason}", if index == 0 { "" } else { "; " })?;
                }
                match reasons.len().saturating_sub(SHOWN) {
                    0 => Ok(()),
                    more => write!(f, "; and {more} more"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_does_not_grow_with_the_number_of_nodes() {
        let nowhere = |nodes: usize| {
            let all = (1..=nodes).map(|number| (format!("n{number}"), Reason::NotReady));
            Choice::Nowhere(all.collect()).to_string()
        };
        assert_eq!(nowhere(2), "0/2 nodes fit: n1 is not ready; n2 is not ready");
        assert!(nowhere(10).ends_with("; n10 is not ready"));
        let many = nowhere(500);
        assert!(many.starts_with("0/500 nodes fit: n1 is not ready; ") && many.ends_with("; and 490 more"));
        assert!(many.len() < 300, "{many}");
    }
}
