//! A scheduler that announces a migration: nothing changes until it is over, and that is shown.

use neonvm_core_vertical_scaling::agent::{Event, PluginAnswer, Settings, Vm};
use neonvm_types::Resources;

use crate::dsl::{Play, cu, load, settings};

/// At two units with a goal of four, and an answer to a request for four: all of it, with the notice.
fn announced() -> Play {
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.metrics(load(0.5));
    p.ask();
    p.answer(cu(4), true);
    p
}

impl Play {
    fn answer(&mut self, permit: Resources, migrate: bool) {
        let id = serde_json::to_value(&self.state).unwrap()["plugin"]["asking"]["id"].as_u64().unwrap();
        self.event(Event::PluginReply { id, result: Ok(PluginAnswer { permit, migrate }) });
    }

    fn shows_migration(&mut self, migrating: bool) {
        self.vm = Vm { migrating, ..self.vm.clone() };
        self.event(Event::Vm(self.vm.clone()));
    }

    /// Only what the VM has is reported, and nothing is done.
    fn only_reports(&mut self) {
        let set = self.next();
        assert!(set.plugin.is_none_or(|request| request.target == cu(2)), "{set:?}");
        let rest = (set.neonvm, set.monitor_downscale, set.monitor_upscale);
        assert_eq!(rest, (None, None, None));
    }
}

#[test]
fn an_announced_migration_holds_the_size() {
    let mut p = announced();
    // What was permitted on top goes back at once; then the usual interval.
    p.only_reports();
    p.ask();
    p.answer(cu(2), true);
    assert_eq!(p.state.view(p.now).permit, Some(cu(2)));
    assert!(p.next().plugin.is_none());
    // Neither load, nor its absence, nor the monitor changes that.
    p.metrics(load(2.0));
    p.only_reports();
    p.request_upscale();
    p.only_reports();
    p.after(60.0).metrics(load(0.0));
    p.only_reports();
    let view = p.state.view(p.now);
    assert_eq!((view.announced.map(|a| a.as_secs()), view.state.as_str()), (Some(60), "waiting: migration"));
    assert_eq!(view.limit.as_deref(), Some("scheduler announces a migration for 60.0s: the size stays"));
}

/// The three ends: an answer without the notice, a migration that was seen and is over, and a new state (a new run).
#[test]
fn the_notice_ends_with_the_migration() {
    for seen in [false, true] {
        let mut p = announced();
        p.ask();
        p.answer(cu(2), true);
        // That the status shows none yet does not end it: the migration may not have been created.
        p.shows_migration(false);
        p.after(15.0).only_reports();
        if seen {
            p.shows_migration(true);
            p.only_reports();
            p.shows_migration(false);
        } else {
            p.ask();
            p.answer(cu(2), false);
        }
        assert_eq!(p.state.view(p.now).announced, None, "seen: {seen}");
        let set = p.next();
        assert_eq!(set.plugin.map(|request| request.target), Some(cu(4)), "seen: {seen}");
        let text =
            p.state.view(p.now).decisions.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        for part in ["scheduler announces a migration", "no migration is announced any more"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

/// A patch that was under way when the notice came is made; the guest is notified of what arrives.
#[test]
fn what_is_under_way_is_finished() {
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.metrics(load(0.5));
    p.ask();
    p.answer(cu(4), false);
    p.patch();
    p.after(15.0).ask();
    p.answer(cu(4), true);
    p.patched();
    p.vm = crate::dsl::vm(cu(1), cu(4), cu(4));
    p.shows_migration(true);
    let set = p.next();
    assert_eq!(set.monitor_upscale.map(|change| change.target), Some(cu(4)));
    assert_eq!((set.neonvm, set.monitor_downscale), (None, None));
}

/// A scheduler that always announces does not freeze a VM unseen.
#[test]
fn a_migration_that_never_begins_is_shown_as_stuck() {
    let deadline = Settings::SHIPPED.migration_deadline.as_secs_f64();
    let answers = |p: &mut Play, until: f64| {
        while p.now.as_secs_f64() < until {
            p.after(15.0).metrics(load(0.5));
            p.ask();
            p.answer(cu(2), true);
        }
    };
    let mut p = announced();
    p.ask();
    p.answer(cu(2), true);
    assert_eq!(p.state.stuck(p.now), None);
    answers(&mut p, deadline + 15.0);
    let stuck = p.state.stuck(p.now).unwrap();
    assert!(stuck.starts_with("scheduler announces a migration for 3"), "{stuck}");
    // One that has begun takes as long as it takes.
    p.shows_migration(true);
    assert_eq!(p.state.stuck(p.now), None);
}

/// An invalid answer is none: its notice does not count either.
#[test]
fn an_invalid_answer_announces_nothing() {
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.metrics(load(0.5));
    p.ask();
    p.answer(cu(9), true);
    assert_eq!(p.state.view(p.now).announced, None);
}
