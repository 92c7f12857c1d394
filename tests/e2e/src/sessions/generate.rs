//! Sessions from seeds.

use super::model::Model;
use super::shape::{MOST_SLOTS, Range, Shape, Size, step_for};
use super::step::{Changes, Creation, Restart, Step, Workload};
use crate::fuzz::Random;

/// Within what values are drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// CPU of a VM, in thousandths.
    pub cpu: Range,
    /// Memory of a VM, in MiB.
    pub memory: Range,
    /// Images that there are.
    pub images: Vec<String>,
    /// Most VMs at a time: 1 to 5.
    pub vms: usize,
    /// Whether images may be removed.
    pub removes_images: bool,
}

/// Names of VMs; the longest that there may be is among them.
const NAMES: [&str; 5] =
    ["a", "b2", "pg-1", "0", "long-long-long-long-long-long-long-long-long-long-long-long-nam"];
/// Names of variables.
const VARIABLES: [&str; 3] = ["A", "PATH_2", "_x"];
/// Values of variables.
const CONTENTS: [&str; 4] = ["", "1", "a=b=c", "two words, and $HOME \u{fc}"];

/// A sequence of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Everything follows from it.
    pub seed: u64,
    /// The commands.
    pub steps: Vec<Step>,
}

impl Session {
    /// The session of a seed, with so many commands.
    #[must_use]
    pub fn new(seed: u64, limits: &Limits, length: usize) -> Self {
        let mut draw = Draw { random: Random::new(seed), limits, model: Model::default() };
        let mut steps = Vec::new();
        while steps.len() < length {
            let step = draw.step();
            draw.model.apply(&step);
            steps.push(step);
        }
        Self { seed, steps }
    }

    /// The part of it that is about some VM up to a step: a shorter session that may fail as well.
    #[must_use]
    pub fn about(&self, vm: &str, end: usize) -> Self {
        let steps = self.steps.iter().take(end).filter(|step| step.vm() == vm).cloned().collect();
        Self { seed: self.seed, steps }
    }
}

/// A seed that no run had before, short enough to be typed.
#[must_use]
pub fn fresh_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    1_000 + u64::from(since.subsec_micros()) * 1_000 + since.as_secs() % 1_000
}

struct Draw<'a> {
    random: Random,
    limits: &'a Limits,
    model: Model,
}

impl Draw<'_> {
    fn step(&mut self) -> Step {
        let names: Vec<String> = self.model.names().map(str::to_owned).collect();
        let few = names.is_empty() || names.len() < self.limits.vms && self.random.once_in(4);
        let Some(name) = self.random.choose(&names).filter(|_| !few).cloned() else {
            return Step::Create(self.creation(&names));
        };
        self.about(name)
    }

    fn about(&mut self, name: String) -> Step {
        match self.random.below(23) {
            0..=3 => self.set(name),
            4..=6 => Step::Hold(name.clone(), self.size(&name)),
            7 => Step::Release(name),
            8 => {
                let (size, off) = (self.size(&name), self.random.once_in(2));
                Step::Fix(name, size, off)
            }
            9 => Step::Auto(name, self.random.once_in(2)),
            10 => {
                let (one, other) = (self.size(&name), self.size(&name));
                let (cpu, memory) = (Range::of(one.cpu, other.cpu), Range::of(one.memory, other.memory));
                let (min, max) =
                    (Size { cpu: cpu.min, memory: memory.min }, Size { cpu: cpu.max, memory: memory.max });
                Step::Bounds(name, min, max)
            }
            11 => Step::Stop(name),
            12 | 13 => Step::Start(name),
            14 => Step::Restart(name),
            15 => Step::Pause(name),
            16 => Step::Resume(name),
            17 | 18 => Step::Migrate(name),
            19 => Step::Cancel(name),
            20 if self.limits.removes_images => {
                let image = self.model.image_of(&name).unwrap_or_default();
                Step::RemoveImage(name, image)
            }
            20 | 21 => Step::Drain(name),
            _ => Step::Delete(name),
        }
    }

    fn creation(&mut self, names: &[String]) -> Creation {
        let free: Vec<&str> = NAMES.into_iter().filter(|name| names.iter().all(|own| own != name)).collect();
        let vm = self.random.pick(&free).to_owned();
        let auto = !self.random.once_in(4);
        let (shape, names_step) = self.shape();
        let start = self.random.once_in(3).then(|| self.within(&shape));
        let start = start.filter(|start| {
            names_step || step_for(&[shape.memory.min, shape.memory.max, start.memory]) == Some(shape.step)
        });
        let workload = match self.random.below(6) {
            0 => Workload::EndsWell,
            1 => Workload::EndsBadly,
            _ => Workload::Stays,
        };
        let policies = Restart::ALL.map(|policy| Some(policy).filter(|policy| !policy.repeats(workload)));
        let policies: Vec<Restart> = policies.into_iter().flatten().collect();
        let restart = self.random.pick(&policies);
        Creation { vm, shape, names_step, start, auto, workload, restart, image: self.image() }
    }

    fn image(&mut self) -> String {
        self.random.choose(&self.limits.images).cloned().unwrap_or_default()
    }

    fn number(&mut self, bounds: Range) -> u32 {
        let width = usize::try_from(bounds.max - bounds.min).unwrap_or(usize::MAX);
        bounds.min + u32::try_from(self.random.below(width.saturating_add(1))).unwrap_or(0)
    }

    /// CPU: whole, in compute units, or any.
    fn cpu(&mut self) -> u32 {
        let grid = match self.random.below(3) {
            0 => 1000,
            1 => 250,
            _ => 1,
        };
        let any = self.number(self.limits.cpu);
        self.limits.cpu.fit((any / grid * grid).max(1))
    }

    /// Bounds of memory in steps of this.
    fn memory(&mut self, step: u32) -> Range {
        let most = (self.limits.memory.max / step).min(MOST_SLOTS);
        let slots = Range { min: self.limits.memory.min.div_ceil(step).min(most), max: most };
        Range::of(self.number(slots) * step, self.number(slots) * step)
    }

    /// Bounds, and whether their step is to be named.
    fn shape(&mut self) -> (Shape, bool) {
        let cpu = Range::of(self.cpu(), self.cpu());
        let step = match self.random.below(3) {
            0 => self.random.pick(&[1024, 512, 256, 128]),
            1 => 8 * self.number(Range { min: 1, max: 160 }),
            _ => self.random.pick(&[8, 16, 24, 40, 64, 200]),
        };
        let memory = self.memory(step);
        match step_for(&[memory.min, memory.max]) {
            Some(step) if self.random.once_in(2) => (Shape { cpu, memory, step }, false),
            _ => (Shape { cpu, memory, step }, true),
        }
    }

    /// A size within bounds.
    fn within(&mut self, shape: &Shape) -> Size {
        let slots = Range { min: shape.memory.min / shape.step, max: shape.memory.max / shape.step };
        let size = Size { cpu: self.number(shape.cpu), memory: self.number(slots) * shape.step };
        match self.random.below(4) {
            0 => shape.most(),
            1 => Size { memory: shape.memory.max, ..size },
            _ => size,
        }
    }

    /// A size for a VM: most often within its bounds.
    fn size(&mut self, name: &str) -> Size {
        let Some(shape) = self.model.shape_of(name) else { return Size { cpu: 1, memory: 8 } };
        let size = self.within(&shape);
        match self.random.below(12) {
            0 => Size { cpu: shape.cpu.max.saturating_add(1), ..size },
            1 => Size { memory: shape.memory.max.saturating_add(shape.step), ..size },
            _ => size,
        }
    }

    fn set(&mut self, name: String) -> Step {
        let Some(step) = self.model.shape_of(&name).map(|shape| shape.step) else { return Step::Stop(name) };
        let mut changes = Changes { now: self.random.once_in(3), ..Changes::default() };
        if self.random.once_in(2) {
            changes.cpu = Some(Range::of(self.cpu(), self.cpu()));
        }
        if self.random.once_in(3) {
            changes.memory = Some(self.memory(step));
        }
        if self.random.once_in(5) {
            changes.image = Some(self.image());
        }
        if self.random.once_in(5) {
            let content = self.random.pick(&CONTENTS).to_owned();
            let value = (!self.random.once_in(3)).then_some(content);
            changes.env = Some((self.random.pick(&VARIABLES).to_owned(), value));
        }
        let policy = self.random.pick(&Restart::ALL);
        let nothing = changes == Changes { now: changes.now, ..Changes::default() };
        if (nothing || self.random.once_in(5)) && !self.model.repeats(&name, policy) {
            changes.restart = Some(policy);
        } else if nothing {
            changes.env = Some(("A".to_owned(), Some("2".to_owned())));
        }
        Step::Set(name, changes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::sessions::Verdict;

    fn limits() -> Limits {
        Limits {
            cpu: Range { min: 1, max: 8000 },
            memory: Range { min: 64, max: 16 * 1024 },
            images: vec!["i:1".into(), "i:2".into()],
            vms: 3,
            removes_images: true,
        }
    }

    #[test]
    fn a_seed_gives_a_session_of_legal_commands() {
        assert_eq!(Session::new(1, &limits(), 30), Session::new(1, &limits(), 30));
        assert_ne!(Session::new(1, &limits(), 30), Session::new(2, &limits(), 30));
        for seed in 0..500 {
            for step in Session::new(seed, &limits(), 30).steps {
                let Step::Create(Creation { shape, start, names_step, .. }) = step else { continue };
                let (cpu, memory) = (shape.cpu, shape.memory);
                assert!(cpu.min >= 1 && cpu.min <= cpu.max && memory.min <= memory.max, "{shape:?}");
                assert!(memory.min > 0 && memory.max / shape.step <= MOST_SLOTS, "{shape:?}");
                assert!(shape.step % 8 == 0 && memory.min % shape.step == 0 && memory.max % shape.step == 0);
                assert!(start.is_none_or(|start| shape.has(start) && start.memory % shape.step == 0));
                let sizes = [memory.min, memory.max];
                assert!(names_step || step_for(&sizes) == Some(shape.step), "{shape:?}");
            }
        }
    }

    /// Every kind of command comes, and most of them are accepted.
    #[test]
    fn every_kind_of_command_is_drawn_and_both_answers_to_it() {
        let mut seen = std::collections::BTreeMap::<String, [usize; 2]>::new();
        for seed in 0..300 {
            let mut model = Model::default();
            for step in Session::new(seed, &limits(), 40).steps {
                let kind = format!("{step:?}").split('(').next().unwrap().to_owned();
                let refused = usize::from(model.verdict(&step) == Verdict::Refused);
                seen.entry(kind).or_default()[refused] += 1;
                model.apply(&step);
            }
        }
        assert_eq!(seen.len(), 17, "{seen:?}");
        for (kind, [accepted, refused]) in &seen {
            let never = match kind.as_str() {
                "Create" | "Set" | "Auto" | "Release" | "Stop" | "Start" | "Restart" | "Delete" => *refused,
                "RemoveImage" => *accepted,
                _ => 0,
            };
            assert!(never == 0 && accepted + refused > 50, "{seen:?}");
        }
    }
}
