//! With an agent of protocol v2.0.

use neonvm_types::monitor_protocol::Wants;

use super::*;

const V2: MonitorProtoVersion = MonitorProtoVersion::V2_0;

fn wants(actions: &[Action]) -> Vec<Wants> {
    let of = |action: &Action| match action {
        Action::Send { message: MonitorMessage::UpscaleRequest { wants: Some(wants) }, .. } => {
            Some(wants.clone())
        }
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

fn cpus(actions: &[Action]) -> Vec<u32> {
    wants(actions).iter().filter_map(|wants| wants.cpu).map(neonvm_types::MilliCpu::milli).collect()
}

#[test]
fn a_busy_loop_on_every_cpu_asks_for_the_next_within_half_a_second() {
    let mut guest = Guest::new(4 * GIB, 2);
    guest.connect(V2);
    guest.ticks(10);
    guest.sample.runnable = 2;
    assert!(guest.ticks(4).is_empty());
    let asked = guest.tick();
    // The next size, whatever the unit is.
    assert_eq!(cpus(&asked), [2001]);
    assert_eq!(wants(&asked)[0].reason, "CPU: 2 runnable tasks on 2 for 500 ms");
    assert!(wants(&asked)[0].mem.is_none());
    // The request is repeated every second as long as the load lasts, and not after the growth.
    // By then there is evidence for as much as makes two runnable tasks 90 % of it.
    assert!(guest.ticks(9).is_empty());
    assert_eq!(cpus(&guest.tick()), [2223]);
    guest.sample.online = 3;
    guest.up(2.25, 4 * GIB);
    assert!(guest.ticks(30).is_empty());
}

#[test]
fn a_burst_of_200_ms_asks_for_nothing() {
    let mut guest = Guest::new(4 * GIB, 1);
    guest.connect(V2);
    guest.ticks(10);
    for _ in 0..20 {
        guest.sample.runnable = 50;
        assert!(guest.ticks(3).is_empty());
        guest.sample.runnable = 0;
        assert!(guest.ticks(5).is_empty());
    }
}

/// On a busy host the guest stands still for most of the time, and its monitor with it.
#[test]
fn a_run_queue_seen_in_few_samples_is_no_evidence() {
    let mut guest = Guest::new(4 * GIB, 1);
    guest.connect(V2);
    guest.ticks(10);
    for _ in 0..20 {
        guest.sample.runnable = 1;
        for _ in 0..4 {
            guest.now += SAMPLE_INTERVAL * 2;
            assert!(guest.tick().is_empty());
        }
        guest.sample.runnable = 0;
        assert!(guest.ticks(5).is_empty());
    }
}

/// Samples of an idle guest are far apart: the load begins when its processors become busy.
#[test]
fn a_run_begins_when_the_processors_become_busy() {
    let asked_after = |idle: u64| {
        let mut guest = Guest::new(4 * GIB, 1);
        guest.connect(V2);
        guest.ticks(10);
        guest.sample.runnable = 1;
        guest.sample.idle = guest.sample.idle.map(|before| before + Duration::from_millis(idle));
        let begun = guest.now;
        let mut tick = || {
            guest.now += Duration::from_millis(40);
            !cpus(&guest.step(Event::Sample(Some(guest.sample)))).is_empty()
        };
        assert!((0..20).any(|_| tick()));
        (guest.now - begun).as_millis()
    };
    // The first sample of the load is 40 ms after the last one without it.
    assert_eq!((asked_after(0), asked_after(40)), (280, 320));
}

#[test]
fn a_run_queue_seen_full_while_processors_idle_is_chance() {
    let mut guest = Guest::new(4 * GIB, 2);
    guest.connect(V2);
    guest.sample.runnable = 2;
    for _ in 0..20 {
        guest.now += SAMPLE_INTERVAL;
        // Both were idle for 90 of the 100 ms.
        guest.sample.idle = Some(guest.sample.idle.unwrap_or_default() + Duration::from_millis(180));
        let sample = guest.sample;
        assert!(guest.step(Event::Sample(Some(sample))).is_empty());
    }
}

#[test]
fn tasks_without_wait_time_are_not_counted_beyond_the_processors() {
    let mut guest = Guest::new(4 * GIB, 2);
    guest.connect(V2);
    guest.sample.runnable = 6;
    guest.sample.cpu_pressure = Some(Duration::ZERO);
    assert_eq!(cpus(&guest.ticks(16)), [2001, 2223]);
    let mut guest = Guest::new(4 * GIB, 2);
    guest.connect(V2);
    guest.sample.runnable = 6;
    let mut asked = Vec::new();
    for _ in 0..16 {
        guest.sample.cpu_pressure = Some(guest.now);
        asked.extend(guest.tick());
    }
    assert_eq!(cpus(&asked), [2001, 6667]);
}

#[test]
fn no_more_cpu_is_asked_for_than_the_vm_can_have() {
    let mut guest = Guest::new(4 * GIB, 4);
    guest.connect(V2);
    guest.sample.runnable = 1000;
    assert_eq!(cpus(&guest.ticks(5)), [4001]);
    assert_eq!(cpus(&guest.ticks(10)), [8000]);
    guest.sample.online = 8;
    guest.up(8.0, 4 * GIB);
    // At its largest it still requests all of it.
    assert_eq!(cpus(&guest.ticks(20)), [8000, 8000]);
}

#[test]
fn a_fraction_of_a_cpu_saturates_by_what_was_granted() {
    let mut guest = Guest::new(4 * GIB, 1);
    guest.connect(V2);
    guest.up(0.25, 4 * GIB);
    guest.sample.runnable = 1;
    // On a busy host an idle guest of a quarter has a full run queue for 400 ms.
    assert!(guest.ticks(5).is_empty());
    assert_eq!(cpus(&guest.tick()), [251]);
    // It fills the next size as well: that is the second evidence, without a further second.
    guest.up(0.5, 4 * GIB);
    assert_eq!(cpus(&guest.ticks(3)), [1112]);
}

/// While memory comes, the kernel works for that; this is no second evidence.
#[test]
fn work_of_taking_memory_in_is_no_load() {
    let mut guest = Guest::new(GIB, 1);
    guest.connect(V2);
    guest.up(0.25, GIB);
    guest.sample.runnable = 1;
    assert_eq!(cpus(&guest.ticks(6)), [251]);
    guest.up(0.5, GIB);
    for _ in 0..8 {
        guest.sample.total += GIB / 8;
        guest.sample.available += GIB / 8;
        assert!(guest.tick().is_empty());
    }
    guest.up(0.5, 2 * GIB);
    guest.sample.runnable = 0;
    assert!(guest.ticks(20).is_empty());
    // A load that lasts is requested for after it.
    guest.sample.runnable = 1;
    assert_eq!(cpus(&guest.ticks(12)).len(), 1);
}

/// CPU that comes and is not used makes the guest wait longer before the next request; CPU that is used ends that. What is not used
/// after the guest's start changes nothing.
#[test]
fn false_alarms_make_a_guest_patient() {
    let mut guest = Guest::new(4 * GIB, 1);
    guest.connect(V2);
    guest.up(0.25, 4 * GIB);
    guest.ticks(10);
    // How many samples a run queue must be full before a request; it ends then, or goes on for three seconds.
    let mut alarm = |is_real: bool| {
        guest.sample.runnable = 1;
        let needed = (1..100).find(|_| !cpus(&guest.tick()).is_empty()).unwrap();
        guest.up(0.5, 4 * GIB);
        guest.sample.runnable = u32::from(is_real);
        guest.ticks(30);
        guest.sample.runnable = 0;
        guest.ticks(50);
        guest.down(0.25, 4 * GIB);
        guest.ticks(10);
        needed
    };
    assert_eq!([false, false, false, false, false].map(&mut alarm), [5, 5, 12, 19, 33]);
    assert_eq!([true, true, false].map(&mut alarm), [33, 5, 5]);
}

#[test]
fn cpu_is_given_up_unless_it_is_used() {
    let mut guest = Guest::new(8 * GIB, 4);
    guest.connect(V2);
    guest.ticks(10);
    assert!(verdict(&guest.down(3.0, 8 * GIB)).0);
    guest.sample.online = 3;
    guest.sample.runnable = 2;
    guest.ticks(10);
    assert!(verdict(&guest.down(2.25, 8 * GIB)).0);
    let (ok, why) = verdict(&guest.down(1.0, 8 * GIB));
    assert!(!ok && why.contains("saturate"), "{why}");
    guest.sample.runnable = 1;
    guest.ticks(3);
    // The run queue is short now; the last second decides.
    let (ok, why) = verdict(&guest.down(1.25, 8 * GIB));
    assert!(!ok && why.starts_with("CPU:"), "{why}");
    guest.sample.runnable = 0;
    guest.ticks(10);
    assert!(verdict(&guest.down(0.25, 8 * GIB)).0);
}

/// A workload that allocates 256 MiB a second must get memory before the guest runs out of it: sizes follow one second after
/// each request, in compute units of 1 GiB or of 256 MiB.
#[test]
fn an_allocation_loop_is_outrun() {
    for unit in [GIB, 256 * MIB] {
        for start in [0, 100, 300, 400, 500] {
            let mut guest = Guest::new(GIB, 1);
            guest.connect(V2);
            guest.up(1.0, GIB);
            guest.sample.anonymous = start * MIB;
            // An idle guest is sampled less often.
            for _ in 0..10 {
                guest.now += QUIET_INTERVAL - SAMPLE_INTERVAL;
                guest.tick();
            }
            let mut arriving: Vec<(Duration, u64)> = Vec::new();
            let mut size = GIB;
            while guest.sample.anonymous < 12 * GIB {
                guest.sample.anonymous += 256 * MIB / 10;
                guest.sample.available = guest.sample.total.saturating_sub(guest.sample.anonymous);
                let asked = guest.tick();
                let due = guest.now + Duration::from_secs(1);
                for mem in wants(&asked).iter().filter_map(|wants| wants.mem) {
                    arriving.push((due, mem.get().div_ceil(unit) * unit));
                }
                for (_, arrived) in arriving.extract_if(.., |(at, _)| *at <= guest.now).collect::<Vec<_>>() {
                    size = size.max(arrived);
                    guest.sample.total = size;
                    guest.up(1.0, size);
                }
                let left = size.saturating_sub(guest.sample.anonymous);
                assert!(left > SYSTEM_BUFFER, "{unit} {start}: {left} left of {size}");
            }
        }
    }
}

#[test]
fn a_program_that_starts_is_no_trend() {
    let mut guest = Guest::new(GIB, 1);
    guest.connect(V2);
    guest.ticks(10);
    guest.sample.anonymous = 500 * MIB;
    assert!(guest.ticks(20).is_empty());
}

#[test]
fn growth_refuses_a_downscale_that_would_be_asked_back_at_once() {
    let mut guest = Guest::new(8 * GIB, 1);
    guest.connect(V2);
    for _ in 0..5 {
        guest.sample.anonymous += 60 * MIB;
        guest.tick();
    }
    let (ok, why) = verdict(&guest.down(0.25, GIB));
    assert!(!ok && why.contains("growing"), "{why}");
    assert!(verdict(&guest.down(0.25, 4 * GIB)).0);
}

#[test]
fn memory_the_kernel_needs_and_thrashing_count() {
    let mut guest = Guest::new(2 * GIB, 1);
    guest.connect(V2);
    guest.sample.available = 50 * MIB;
    let asked = wants(&guest.ticks(2));
    assert!(asked[0].mem.is_some_and(|mem| mem.get() > 2 * GIB), "{asked:?}");
    let mut guest = Guest::new(2 * GIB, 1);
    guest.connect(V2);
    guest.sample.available = 190 * MIB;
    guest.sample.anonymous = 200 * MIB;
    guest.policy.granted = None;
    let mut asked = Vec::new();
    for _ in 0..5 {
        guest.sample.memory_pressure = Some(guest.now / 2);
        asked.extend(guest.tick());
    }
    assert!(wants(&asked)[0].mem.is_some_and(|mem| mem.get() > 2 * GIB), "{asked:?}");
}

#[test]
fn samples_are_rare_while_nothing_moves_or_no_agent_is_connected() {
    let mut guest = Guest::new(2 * GIB, 1);
    let sampled = |guest: &mut Guest| {
        let (now, sample) = (guest.now, guest.sample);
        guest.policy.step(now, Event::Sample(Some(sample))).wake_at - now
    };
    assert_eq!(sampled(&mut guest), LONELY_INTERVAL);
    guest.connect(V2);
    assert_eq!(sampled(&mut guest), SAMPLE_INTERVAL);
    guest.ticks(5);
    assert_eq!(sampled(&mut guest), QUIET_INTERVAL);
    guest.sample.runnable = 1;
    assert_eq!(sampled(&mut guest), SUSPECT_INTERVAL);
}

/// Releasing memory keeps the kernel busy. This does not cause a request for the CPU that was released with it.
#[test]
fn work_of_giving_memory_back_is_no_load() {
    let mut guest = Guest::new(4 * GIB, 1);
    guest.connect(MonitorProtoVersion::V2_0);
    guest.ticks(10);
    let agreed = guest.down(0.5, 2 * GIB);
    assert!(matches!(
        agreed[..],
        [Action::Send { message: MonitorMessage::DownscaleResult { ok: true, .. }, .. }]
    ));
    guest.sample.runnable = 3;
    // A second of work, then it is done, and the kernel's tasks end.
    for _ in 0..10 {
        guest.sample.total -= GIB / 5;
        assert_eq!(guest.tick(), vec![]);
    }
    guest.sample.runnable = 0;
    assert_eq!(guest.ticks(30), vec![]);
    // CPU for a persistent load is requested.
    guest.sample.runnable = 3;
    assert_ne!(guest.ticks(10), vec![]);
}

/// However long the release takes, CPU for a persistent load is requested in the end.
#[test]
fn giving_memory_back_does_not_silence_a_guest() {
    let mut guest = Guest::new(4 * GIB, 1);
    guest.connect(MonitorProtoVersion::V2_0);
    guest.ticks(10);
    guest.down(0.5, 2 * GIB);
    guest.sample.runnable = 3;
    let mut asked = Vec::new();
    for _ in 0..120 {
        guest.sample.total -= MIB;
        asked.extend(guest.tick());
    }
    assert_ne!(asked, vec![]);
}
