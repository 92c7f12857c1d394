//! The difference of two values as a real API server prints it: hunks of the lines of their JSON. The lines are matched
//! as by Python's `difflib`, which takes the longest run of equal lines first, then looks before it and behind it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use super::internal::Held;

/// Equal lines that are shown beside a change.
const CONTEXT: usize = 3;
/// From so many lines on, those that make up more than a hundredth of all begin no run.
const MANY: usize = 200;
/// Texts of more lines are compared at their ends only.
const MOST: usize = 20_000;

/// A run of equal lines: where it begins in the old and in the new text, and its length.
type Run = (usize, usize, usize);

/// What became of some lines of the old text.
struct Step {
    equal: bool,
    old: Range<usize>,
    new: Range<usize>,
}

/// What changed; empty if nothing did.
pub(super) fn between(old: &Held, new: &Held) -> String {
    of_texts(&old.indented(), &new.indented())
}

fn of_texts(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let mut text = String::new();
    for hunk in hunks(steps(&matching(&old, &new), old.len(), new.len())) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let (before, after) = (first.old.start..last.old.end, first.new.start..last.new.end);
        let _ = writeln!(text, "@@ -{} +{} @@", place(&before), place(&after));
        for step in &hunk {
            for (sign, lines, range) in [('-', &old, &step.old), ('+', &new, &step.new)] {
                let sign = if step.equal { ' ' } else { sign };
                for line in lines.get(range.clone()).unwrap_or_default() {
                    let _ = writeln!(text, "{sign}{line}");
                }
                if step.equal {
                    break;
                }
            }
        }
    }
    text
}

/// Lines as they are named above a hunk.
fn place(lines: &Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        count => format!("{},{count}", lines.start + 1),
    }
}

/// All lines as steps, in their order.
fn steps(runs: &[Run], old: usize, new: usize) -> Vec<Step> {
    let (mut steps, mut at) = (Vec::new(), (0, 0));
    for &(first, second, length) in runs.iter().chain([&(old, new, 0)]) {
        if (first, second) != at {
            steps.push(Step { equal: false, old: at.0..first, new: at.1..second });
        }
        at = (first + length, second + length);
        if length > 0 {
            steps.push(Step { equal: true, old: first..at.0, new: second..at.1 });
        }
    }
    steps
}

/// Changes that stand close to each other, with the equal lines beside them.
fn hunks(steps: Vec<Step>) -> Vec<Vec<Step>> {
    let (mut hunks, mut hunk) = (Vec::new(), Vec::new());
    let last = steps.len().saturating_sub(1);
    for (index, step) in steps.into_iter().enumerate() {
        if !step.equal {
            hunk.push(step);
            continue;
        }
        let (behind, before) = (index > 0, index < last);
        let length = step.old.len();
        let (head, tail) = (if behind { CONTEXT } else { 0 }, if before { CONTEXT } else { 0 });
        if length <= head + tail {
            hunk.push(step);
            continue;
        }
        let (Step { old, new, .. }, skipped) = (step, length - tail);
        if behind {
            hunk.push(Step {
                equal: true,
                old: old.start..old.start + head,
                new: new.start..new.start + head,
            });
            hunks.push(std::mem::take(&mut hunk));
        }
        hunk.push(Step { equal: true, old: old.start + skipped..old.end, new: new.start + skipped..new.end });
    }
    hunks.push(hunk);
    hunks.retain(|hunk| hunk.iter().any(|step| !step.equal));
    hunks
}

/// The runs of equal lines that are kept, in their order; no two of them touch.
fn matching(old: &[&str], new: &[&str]) -> Vec<Run> {
    if old.len().max(new.len()) > MOST {
        return ends(old, new);
    }
    let places = places(new);
    let mut runs = Vec::new();
    let mut open = vec![(0..old.len(), 0..new.len())];
    while let Some((before, after)) = open.pop() {
        let (first, second, length) = longest(old, new, &places, (&before, &after));
        if length == 0 {
            continue;
        }
        runs.push((first, second, length));
        open.push((before.start..first, after.start..second));
        open.push((first + length..before.end, second + length..after.end));
    }
    runs.sort_unstable();
    joined(&runs)
}

/// Runs of which none begins where another one ends.
fn joined(runs: &[Run]) -> Vec<Run> {
    let mut all: Vec<Run> = Vec::new();
    for &(first, second, length) in runs {
        match all.last_mut() {
            Some(last) if (last.0 + last.2, last.1 + last.2) == (first, second) => last.2 += length,
            _ => all.push((first, second, length)),
        }
    }
    all
}

/// Where each line stands, without those that stand in too many places.
fn places<'a>(lines: &[&'a str]) -> BTreeMap<&'a str, Vec<usize>> {
    let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, line) in lines.iter().enumerate() {
        places.entry(line).or_default().push(index);
    }
    if lines.len() >= MANY {
        places.retain(|_, all| all.len() <= lines.len() / 100 + 1);
    }
    places
}

/// The longest run in a part of both texts; of several ones, the first.
fn longest(
    old: &[&str],
    new: &[&str],
    places: &BTreeMap<&str, Vec<usize>>,
    (before, after): (&Range<usize>, &Range<usize>),
) -> Run {
    let (mut first, mut second, mut length) = (before.start, after.start, 0);
    // How long a run is that ends at the line before and at that line of the new text.
    let mut ending: BTreeMap<usize, usize> = BTreeMap::new();
    for index in before.clone() {
        let mut next = BTreeMap::new();
        let own = old.get(index).and_then(|line| places.get(line)).map_or(&[][..], Vec::as_slice);
        for &place in own.iter().filter(|place| after.contains(place)) {
            let run = 1 + place.checked_sub(1).and_then(|place| ending.get(&place)).unwrap_or(&0);
            next.insert(place, run);
            if run > length {
                (first, second, length) = (index + 1 - run, place + 1 - run, run);
            }
        }
        ending = next;
    }
    // Lines that stand in many places belong to a run all the same.
    let same = |first: usize, second: usize| {
        before.contains(&first) && after.contains(&second) && old.get(first) == new.get(second)
    };
    while first > 0 && second > 0 && same(first - 1, second - 1) {
        (first, second, length) = (first - 1, second - 1, length + 1);
    }
    while same(first + length, second + length) {
        length += 1;
    }
    (first, second, length)
}

/// What both texts have in common at their ends.
fn ends(old: &[&str], new: &[&str]) -> Vec<Run> {
    let equal = |(one, other): &(&&str, &&str)| one == other;
    let head = old.iter().zip(new).take_while(equal).count();
    let rest = (old.iter().skip(head).rev(), new.iter().skip(head).rev());
    let tail = rest.0.zip(rest.1).take_while(equal).count();
    let runs = [(0, 0, head), (old.len() - tail, new.len() - tail, tail)];
    joined(&runs.into_iter().filter(|run| run.2 > 0).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
