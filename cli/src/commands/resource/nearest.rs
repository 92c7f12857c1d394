//! The name that was probably meant.

/// The name that was probably meant: one that differs in at most a third of its characters.
pub(in crate::commands) fn nearest(name: &str, known: &[String]) -> Option<String> {
    let distances = known.iter().map(|other| (distance(name, other), other));
    let (distance, other) = distances.min()?;
    (distance <= name.chars().count().max(3) / 3).then(|| other.clone())
}

/// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: [Vec<usize>; 3] = [Vec::new(), Vec::new(), (0..=other.len()).collect()];
    for (i, a) in one.iter().enumerate() {
        rows.rotate_left(1);
        let [before, last, row] = &mut rows;
        row.clear();
        row.push(i + 1);
        for (j, b) in other.iter().enumerate() {
            let of = |row: &[usize], index: usize| row.get(index).copied().unwrap_or(usize::MAX - 1);
            let mut best = (of(last, j) + usize::from(a != b)).min(of(last, j + 1) + 1).min(of(row, j) + 1);
            let swapped = i > 0 && j > 0 && one.get(i - 1) == Some(b) && other.get(j - 1) == Some(a);
            if swapped {
                best = best.min(of(before, j - 1) + 1);
            }
            row.push(best);
        }
    }
    rows[2].last().copied().unwrap_or_default()
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
        assert_eq!((distance("", "abc"), distance("abc", ""), distance("ab", "ba")), (3, 3, 1));
    }
}
