//! The name that was probably meant.

/// The name that was probably meant: one that differs in at most a third of its characters, a swap of neighbours counts once.
pub(in crate::commands) fn nearest(name: &str, known: &[String]) -> Option<String> {
    let distances = known.iter().map(|other| (strsim::osa_distance(name, other), other));
    let (distance, other) = distances.min()?;
    (distance <= name.chars().count().max(3) / 3).then(|| other.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_was_meant() {
        let known: Vec<String> = ["pg-main", "pg-dev", "web-1"].map(str::to_owned).into();
        assert_eq!(nearest("pg-mian", &known).as_deref(), Some("pg-main"));
        assert_eq!(nearest("web1", &known).as_deref(), Some("web-1"));
        assert_eq!(nearest("database", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
