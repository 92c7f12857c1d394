//! The lanes of `xtask test` (the gate) and `xtask soak`: what runs, in which order, and for how long it may.

use std::time::Duration;

use anyhow::ensure;

use crate::host::changed::Sources;
use crate::process::installed;
use crate::suite::{Binary, Kind, Plan};

#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Runs a command, which is one test.
    Command(Vec<&'static str>),
    /// Runs a command that counts its tests in its closing line.
    Counting(Vec<&'static str>),
    /// Builds every program and test of the workspace, which is one test.
    Build,
    /// Runs tests that were built.
    Tests(Plan),
}

#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    pub(crate) work: Work,
    /// Time it should take on two idle cores when everything that can be kept is there; those of the gate are some 12 minutes together. The summary compares; nothing fails by it.
    pub(crate) budget: Duration,
    /// Time after which it is ended.
    pub(crate) limit: Duration,
    pub(crate) skip: Option<String>,
}

/// A lane of the gate: its budget in seconds, and a limit for a computer that builds everything first.
fn lane(name: &'static str, seconds: u64, work: Work) -> Lane {
    let budget = Duration::from_secs(seconds);
    Lane { name, work, budget, limit: Duration::from_secs(40 * 60), skip: None }
}

impl Lane {
    fn needs(self, program: &str) -> Self {
        Self { skip: (!installed(program)).then(|| format!("{program} is not installed")), ..self }
    }

    fn limit(self, minutes: u64) -> Self {
        Self { limit: Duration::from_secs(60 * minutes), ..self }
    }
}

/// Time for a test without a guest.
const LIGHT: Duration = Duration::from_secs(300);
/// Time for a test with a guest, or of the soak.
const HEAVY: Duration = Duration::from_secs(15 * 60);

fn tests(programs: fn(&Binary) -> bool) -> Plan {
    Plan { programs, names: |_| true, at_once: 0, limit: LIGHT, repeat: false, environment: &[] }
}

/// Test programs that boot guests or change the network of namespaces of their own.
fn has_guests(binary: &Binary) -> bool {
    binary.is_integration("qemu") || binary.is_integration("root")
}

/// Tests with guests that take longer than what they add to the others is worth in the gate; the soak runs them.
const LONG: [&str; 28] = [
    "dirty::a_guest_with_all_of_its_memory_written_is_never_killed",
    "disk::workloads::postgres_goes_from_a_registry_into_a_vm_and_back",
    "down::a_vm_that_does_not_stop_is_killed_in_time",
    "down::vms_are_powered_off_and_start_again",
    "drain::a_drain_continues_when_the_controller_is_killed",
    "drain::a_node_is_drained_and_no_vm_is_restarted",
    "ends::killed_processes_are_reported_and_replaced",
    "faults::a_target_that_dies_at_the_switch_leaves_the_guest_at_home",
    "kuttl::scaling_scenarios_run",
    "kuttl::short_scenarios_run",
    "links::disks_are_copied_over_a_slow_link_and_given_up",
    "links::slow_dead_and_lossy_links",
    "migration::a_database_is_migrated_under_load_and_keeps_its_sessions",
    "migration::the_scheduler_migrates_a_vm_off_a_node_under_pressure",
    "monitor::a_guest_under_load_asks_for_processors_and_memory",
    "monitoring::dashboards_and_rules_work_in_prometheus",
    "moves::a_move_can_be_called_off_and_another_follows",
    "moves::a_target_without_its_source_ends",
    "moves::only_a_twin_is_let_in",
    "overlay::vms_of_two_nodes_reach_each_other_on_the_overlay",
    "scaling::a_full_node_refuses_and_reports_it",
    "scaling::a_hold_keeps_a_size_until_it_ends",
    "scaling::memory_grows_before_it_is_missing",
    "scaling::revisions_are_followed_even_backwards_and_the_agent_counts_on_from_them",
    "scenarios::swap_and_quotas_can_be_changed_from_inside",
    "shapes::a_part_of_a_size_is_given",
    "sizes::a_guest_that_keeps_its_memory_is_reported_with_the_size_it_reached",
    "survival::nodes_are_separate_and_can_be_cordoned",
];

fn is_long(name: &str) -> bool {
    LONG.contains(&name)
}

fn is_soak(binary: &Binary) -> bool {
    binary.is_integration("soak")
        || binary.package == "neonvm-apiserver-endurance" && binary.kind == Kind::Integration
}

fn is_simulator(binary: &Binary) -> bool {
    binary.package == "neonvm-sim" && binary.kind == Kind::Integration
}

/// Of the API server's tests, the replay of recordings is a lane of its own.
fn is_apart(binary: &Binary) -> bool {
    has_guests(binary)
        || is_soak(binary)
        || is_simulator(binary)
        || binary.package == "neonvm-apiserver-conformance" && binary.kind == Kind::Integration
        || binary.is_integration("local")
        || binary.is_integration("adversary")
        || binary.is_integration("book")
}

fn is_unit(binary: &Binary) -> bool {
    !is_apart(binary) && !is_service(binary)
}

/// Services against an API server in the process of the test.
fn is_service(binary: &Binary) -> bool {
    !is_apart(binary)
        && (binary.is_integration("it") && starts_services(&binary.package)
            || binary.is_integration("services"))
}

fn starts_services(package: &str) -> bool {
    const SERVICES: [&str; 9] = [
        "neonvm-agent",
        "neonvm-apiserver",
        "neonvm-neond",
        "neonvm-kubelet",
        "neonvm-pod-autoscaler",
        "neonvm-runner",
        "neonvm-scheduler",
        "neonvm-vm-controller",
        "neonvm-vxlan-controller",
    ];
    SERVICES.contains(&package)
}

pub(crate) fn gate() -> Vec<Lane> {
    let clippy =
        ["cargo", "clippy", "--locked", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
    let names = |name: &str| !is_long(name);
    let guests = Plan { names, at_once: 2, limit: HEAVY, repeat: true, ..tests(has_guests) };
    // They wait more than they compute.
    let services = Plan { at_once: 6, ..tests(is_service) };
    let local = Plan { at_once: 2, repeat: true, ..tests(|binary| binary.is_integration("local")) };
    let is_checked = |name: &str| name.starts_with("checked::");
    let book = Plan { names: is_checked, ..tests(|binary| binary.is_integration("book")) };
    let adversary =
        Plan { at_once: 2, limit: HEAVY, repeat: true, ..tests(|binary| binary.is_integration("adversary")) };
    vec![
        lane("format", 5, Work::Command(vec!["cargo", "fmt", "--all", "--check"])).needs("rustfmt"),
        // The unit tests compare the generated files.
        lane("check", 5, Work::Command(vec!["cargo", "xtask", "check", "--still"])),
        lane("clippy", 10, Work::Command(clippy.to_vec())).needs("cargo-clippy"),
        lane("guest", 5, Work::Command(vec!["cargo", "xtask", "guest"])),
        lane("programs", 10, Work::Build),
        lane("kernel", 10, Work::Command(vec!["cargo", "xtask", "kernel", "--fetch"])),
        lane("unit", 70, Work::Tests(tests(is_unit))),
        // Those in the documentation of crates.
        lane(
            "examples",
            15,
            Work::Command(vec!["cargo", "test", "--locked", "--quiet", "--workspace", "--doc"]),
        ),
        lane("simulator", 25, Work::Tests(tests(is_simulator))),
        lane("services", 120, Work::Tests(services)),
        lane("conformance", 30, Work::Counting(vec!["neonvm-apiserver-conformance", "--quiet"])),
        lane("local", 20, Work::Tests(local)),
        lane("book", 5, Work::Tests(book)),
        lane("adversary", 60, Work::Tests(adversary)),
        lane("guests", 420, Work::Tests(guests)),
    ]
}

/// The long, the random and the chaotic.
pub(crate) fn soak() -> Vec<Lane> {
    // The fuzzers of the gate's lane, for ten minutes each.
    let fuzz = Plan {
        names: |name| name.starts_with("fuzz::"),
        at_once: 1,
        limit: Duration::from_secs(60 * 60),
        environment: &[("NEONVM_FUZZ_SECONDS", "600")],
        ..tests(|binary| binary.is_integration("adversary"))
    };
    let fresh_seeds =
        Plan { at_once: 1, limit: HEAVY, environment: &[("NEONVM_SIM_FRESH", "1")], ..tests(is_simulator) };
    let is_session = |name: &str| name.starts_with("sessions::");
    let chaos = Plan {
        names: |name| !name.starts_with("sessions::"),
        at_once: 1,
        limit: Duration::from_secs(2 * 60 * 60),
        environment: &[("NEONVM_MOVE_ROUNDS", "100"), ("NEONVM_CUT_ROUNDS", "100")],
        ..tests(is_soak)
    };
    // Fresh ones, with fake and with real guests.
    let sessions = Plan {
        names: is_session,
        at_once: 1,
        limit: Duration::from_secs(90 * 60),
        environment: &[("NEONVM_SESSION_FRESH", "20")],
        ..tests(|binary| {
            binary.is_integration("soak") || binary.package == "neonvm-cli" && is_service(binary)
        })
    };
    // The commands of the documentation.
    let is_executed = |name: &str| name.starts_with("executed::");
    let pages = Plan {
        names: is_executed,
        at_once: 1,
        limit: Duration::from_secs(30 * 60),
        ..tests(|binary| binary.is_integration("book"))
    };
    // The long ones as well.
    let built = Plan {
        at_once: 2,
        limit: HEAVY,
        repeat: true,
        environment: &[("NEONVM_TEST_KERNEL", "built")],
        ..tests(has_guests)
    };
    vec![
        lane("guest", 30, Work::Command(vec!["cargo", "xtask", "guest"])),
        lane("programs", 60, Work::Build),
        lane("kernel", 5, Work::Command(vec!["cargo", "xtask", "kernel", "--fetch"])),
        lane("source", 15 * 60, Work::Command(vec!["cargo", "xtask", "kernel"])),
        lane("pages", 15 * 60, Work::Tests(pages)).limit(90),
        lane("storms", 300, Work::Tests(fresh_seeds)),
        lane("built", 360, Work::Tests(built)),
        lane("chaos", 60 * 60, Work::Tests(chaos)).limit(4 * 60),
        lane("sessions", 60 * 60, Work::Tests(sessions)).limit(4 * 60),
        lane("fuzz", 35 * 60, Work::Tests(fuzz)).limit(90),
        lane("parsers", 20 * 60, Work::Counting(vec!["cargo", "xtask", "fuzz"])),
        lane("packages", 30, Work::Counting(vec!["cargo", "xtask", "packages"])),
        host(),
        lane("bare", 2 * 60 * 60, Work::Command(vec!["cargo", "xtask", "bare"])).limit(6 * 60),
    ]
}

/// The product on an emulated computer with KVM.
fn host() -> Lane {
    lane("host", 20 * 60, Work::Counting(vec!["cargo", "xtask", "host"])).limit(90)
}

/// The lane of the gate for changes of the sources that run VMs on a host: the short form; none without a change.
fn short_host(sources: Sources) -> Option<Lane> {
    let short = lane("host", 8 * 60, Work::Counting(vec!["cargo", "xtask", "host", "--short"])).limit(90);
    match sources {
        Sources::Unchanged => None,
        Sources::Changed => Some(short),
        Sources::NeverPassed => {
            let reason = "cargo xtask host has not passed on this computer, so no change is known";
            Some(Lane { skip: Some(reason.to_owned()), ..short })
        }
    }
}

/// What `test` can run: the gate, the emulated host if its sources have changed, and all checks on both hosts by name.
pub(crate) fn testable(names: &[String], sources: Sources) -> Vec<Lane> {
    let named = names.iter().any(|name| name == "host");
    gate().into_iter().chain(if named { Some(host()) } else { short_host(sources) }).collect()
}

/// Prints the names of lanes with their budgets.
pub(crate) fn list(lanes: &[Lane]) -> bool {
    for lane in lanes {
        println!("{:<12} {:5} s", lane.name, lane.budget.as_secs());
    }
    true
}

/// Lanes that make what a lane uses.
fn made_by(lane: &str) -> &'static [&'static str] {
    match lane {
        "local" | "book" => &["guest", "programs"],
        "guests" | "pages" | "chaos" | "sessions" => &["guest", "programs", "kernel"],
        "built" => &["guest", "programs", "source"],
        "host" => &["guest", "kernel"],
        _ => &[],
    }
}

/// The lanes with these names and those that they need, in their order; with no name, all of them.
pub(crate) fn chosen(all: Vec<Lane>, names: &[String]) -> anyhow::Result<Vec<Lane>> {
    for name in names {
        let known: Vec<&str> = all.iter().map(|lane| lane.name).collect();
        ensure!(known.contains(&name.as_str()), "no lane {name}; there are: {}", known.join(", "));
    }
    let named = |lane: &Lane| {
        names.is_empty() || names.iter().any(|name| name == lane.name || made_by(name).contains(&lane.name))
    };
    Ok(all.into_iter().filter(named).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_chosen_by_name_and_kept_in_order() {
        let names = |chosen: Vec<Lane>| -> Vec<&str> { chosen.iter().map(|lane| lane.name).collect() };
        assert_eq!(names(chosen(gate(), &[]).unwrap()).first(), Some(&"format"));
        assert_eq!(names(chosen(gate(), &["unit".into(), "format".into()]).unwrap()), ["format", "unit"]);
        let with_what_they_need = ["guest", "programs", "kernel", "unit", "guests"];
        assert_eq!(names(chosen(gate(), &["guests".into(), "unit".into()]).unwrap()), with_what_they_need);
        let pages = names(chosen(soak(), &["pages".into()]).unwrap());
        assert_eq!(pages, ["guest", "programs", "kernel", "pages"]);
        let host = ["host".to_owned()];
        let by_name = testable(&host, Sources::Unchanged);
        assert_eq!(names(chosen(by_name, &host).unwrap()), ["guest", "kernel", "host"]);
        assert_eq!(names(testable(&[], Sources::Unchanged)), names(gate()));
        let changed = testable(&[], Sources::Changed).pop().unwrap();
        assert!(changed.name == "host" && changed.skip.is_none(), "{changed:?}");
        assert!(testable(&[], Sources::NeverPassed).pop().unwrap().skip.is_some());
        let error = chosen(gate(), &["vms".into()]).err().unwrap().to_string();
        assert!(error.starts_with("no lane vms; there are: format, check"), "{error}");
    }

    #[test]
    fn guests_run_after_their_kernel_and_the_programs() {
        for lanes in [gate(), soak()] {
            let at = |name: &str| lanes.iter().position(|lane| lane.name == name);
            let guests = at("guests").or(at("built"));
            assert!(at("kernel") < guests && at("programs") < guests && at("guest") < guests);
        }
    }

    #[test]
    fn each_test_program_is_in_one_lane() {
        let binary = |package: &str, name: &str, kind| Binary {
            package: package.into(),
            name: name.into(),
            kind,
            executable: "x".into(),
            directory: "x".into(),
        };
        let all = [
            binary("neonvm-kit", "neonvm_kit", Kind::Unit),
            binary("neonvm-sim", "neonvm_sim", Kind::Unit),
            binary("neonvm-sim", "it", Kind::Integration),
            binary("neonvm-runner", "it", Kind::Integration),
            binary("neonvm-runner", "qemu", Kind::Integration),
            binary("neonvm-vxlan-controller", "root", Kind::Integration),
            binary("neonvm-guest", "services", Kind::Integration),
            binary("neonvm-cli", "services", Kind::Integration),
            binary("neonvm-e2e", "local", Kind::Integration),
            binary("neonvm-e2e", "soak", Kind::Integration),
            binary("neonvm-e2e", "adversary", Kind::Integration),
            binary("neonvm-e2e", "book", Kind::Integration),
            binary("neonvm-apiserver-endurance", "endurance", Kind::Integration),
            binary("neonvm-core-vertical-scaling", "it", Kind::Integration),
        ];
        let lanes = || {
            [gate(), soak()]
                .into_iter()
                .flatten()
                .filter(|lane| !["pages", "storms", "built", "fuzz", "sessions"].contains(&lane.name))
        };
        for binary in all {
            let of = |lane: &Lane| matches!(&lane.work, Work::Tests(plan) if (plan.programs)(&binary));
            assert_eq!(lanes().filter(of).count(), 1, "{}", binary.id());
        }
    }
}
