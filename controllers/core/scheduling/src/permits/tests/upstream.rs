//! Answers of upstream's scheduler at its commit a4bce09e, recorded from its own code with drawn nodes and requests, on and off
//! the grid of the compute unit. CPU is in thousandths, memory in mebibytes unless bytes are named.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::request::is_whole;
use super::*;

#[derive(Deserialize)]
struct Row {
    unit: (u64, u64),
    total: (u64, u64),
    /// What other pods have on the node.
    others: (u64, u64),
    /// Factor in thousandths.
    overcommit: u64,
    had: (u64, u64),
    asked: (u64, u64),
    /// Upstream's answer: thousandths of a CPU and mebibytes, rounded down.
    permit: (u64, u64),
    #[serde(rename = "permitBytes")]
    permit_bytes: u64,
}

fn pair((cpu, mib): (u64, u64)) -> Pair<u64> {
    Pair::new(cpu, mib << 20)
}

/// The node and the VM of a row, before the request.
fn before(row: &Row) -> State {
    let mut state = state(pair(row.total));
    state.step(at(0), seen(plain("others", "n", pair(row.others))));
    let mut own = vm("p", "n", 0, 10_000);
    let seen_vm = own.vm.as_mut().unwrap();
    (seen_vm.overcommit, seen_vm.slot_size) = (Pair::both(row.overcommit), Some(Bytes::mib(128)));
    state.step(at(0), seen(own));
    let index = state.pod_index[&name("p")];
    state.change(index, |pod| (pod.held, pod.known) = (pair(row.had), true));
    state
}

/// Why an answer is another one (COMPATIBILITY.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    Same,
    /// Of a request of whole units, which fits in part, the same number of units of both.
    EqualUnits,
    /// A request between two multiples that fits is permitted as it is; upstream rounds the growth down.
    FitsAsItIs,
}

/// What this scheduler should permit where upstream permits `theirs`.
fn expected(row: &Row, theirs: Pair<u64>, room: Pair<u64>) -> (Rule, Pair<u64>) {
    let (unit, asked, had) = (pair(row.unit), pair(row.asked), pair(row.had));
    if theirs == asked {
        return (Rule::Same, theirs);
    }
    let (rule, ours) = if !asked.any_greater(room.max(had)) {
        (Rule::FitsAsItIs, asked)
    } else if is_whole(asked, unit) {
        let units = (theirs.cpu / unit.cpu).min(theirs.mem / unit.mem);
        (Rule::EqualUnits, unit.map(|unit| unit * units).max(had.min(asked)))
    } else {
        let fits = |asked: u64, (theirs, limit): (u64, u64)| if asked <= limit { asked } else { theirs };
        let ends = theirs.with(room.max(had), |theirs, limit| (theirs, limit));
        (Rule::FitsAsItIs, Pair::new(fits(asked.cpu, ends.cpu), fits(asked.mem, ends.mem)))
    };
    (if ours == theirs { Rule::Same } else { rule }, ours)
}

#[test]
fn permits_are_those_of_upstream_but_for_two_rules() {
    let rows: Vec<Row> = serde_json::from_str(include_str!("upstream.json")).unwrap();
    let mut counts = BTreeMap::<Rule, usize>::new();
    for (index, row) in rows.iter().enumerate() {
        let mut state = before(row);
        let room = state.room(state.pods.get(state.pod_index[&name("p")]).unwrap());
        let (unit, asked) = (pair(row.unit).resources(), pair(row.asked).resources());
        let request = Request::new(unit, asked, Some(pair(row.had).resources()));
        let ours = state.request(at(1), &name("p"), &request).unwrap().permit;
        let theirs = Pair::new(row.permit.0, row.permit_bytes);
        let (rule, want) = expected(row, theirs, room);
        assert_eq!(
            ours,
            want.resources(),
            "row {index}, {rule:?}: upstream permits {theirs:?}, room {room:?}"
        );
        *counts.entry(rule).or_default() += 1;
        audit(&state);
    }
    assert_eq!(counts, [(Rule::Same, 166), (Rule::EqualUnits, 33), (Rule::FitsAsItIs, 1)].into());
}
