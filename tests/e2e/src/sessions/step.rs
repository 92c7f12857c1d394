//! What people do, as command lines of `neonctl`.

use std::fmt;

use super::shape::{Range, Shape, Size, cpu, memory, range};

/// What the command of a VM does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// It runs until it is stopped.
    Stays,
    /// It ends at once, with exit code 0.
    EndsWell,
    /// It ends at once, with exit code 3.
    EndsBadly,
}

impl Workload {
    /// The command.
    #[must_use]
    pub fn command(self) -> [&'static str; 3] {
        let script = match self {
            Self::Stays => "echo up; exec sleep 1000000",
            Self::EndsWell => "echo done; exit 0",
            Self::EndsBadly => "echo broken; exit 3",
        };
        ["/bin/sh", "-c", script]
    }

    /// The workload with this command.
    #[must_use]
    pub fn of(command: &[String]) -> Option<Self> {
        [Self::Stays, Self::EndsWell, Self::EndsBadly]
            .into_iter()
            .find(|one| one.command()[..] == command[..])
    }
}

/// A restart policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// `Always`
    #[default]
    Always,
    /// `OnFailure`
    OnFailure,
    /// `Never`
    Never,
}

impl Restart {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self::Always, Self::OnFailure, Self::Never];

    /// The word in flags and objects.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::OnFailure => "OnFailure",
            Self::Never => "Never",
        }
    }

    /// Whether a VM of which the workload ended is started again, and ends again, without end.
    #[must_use]
    pub const fn repeats(self, workload: Workload) -> bool {
        match (self, workload) {
            (_, Workload::Stays) | (Self::Never, _) | (Self::OnFailure, Workload::EndsWell) => false,
            (Self::Always, _) | (Self::OnFailure, Workload::EndsBadly) => true,
        }
    }
}

/// A VM that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creation {
    /// Its name.
    pub vm: String,
    /// Its bounds.
    pub shape: Shape,
    /// Whether the step of memory is named.
    pub names_step: bool,
    /// The size it starts with, if it is named.
    pub start: Option<Size>,
    /// Whether its load scales it.
    pub auto: bool,
    /// What it runs.
    pub workload: Workload,
    /// When it is started again.
    pub restart: Restart,
    /// Its image.
    pub image: String,
}

impl Creation {
    /// Whether its workload ends by itself.
    #[must_use]
    pub fn ends(&self) -> bool {
        self.workload != Workload::Stays
    }
}

/// Changes of a VM's object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Bounds of CPU.
    pub cpu: Option<Range>,
    /// Bounds of memory.
    pub memory: Option<Range>,
    /// Image.
    pub image: Option<String>,
    /// A variable, and its value; none removes it.
    pub env: Option<(String, Option<String>)>,
    /// Restart policy.
    pub restart: Option<Restart>,
    /// Whether the VM is restarted for what needs it.
    pub now: bool,
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// `vm create`
    Create(Creation),
    /// `vm set`
    Set(String, Changes),
    /// `vm scale --cpu --memory`, with `--auto off` if so.
    Fix(String, Size, bool),
    /// `vm scale --auto`
    Auto(String, bool),
    /// `vm scale --min --max`
    Bounds(String, Size, Size),
    /// `vm scale --cpu --memory --hold`
    Hold(String, Size),
    /// `vm scale --hold off`
    Release(String),
    /// `vm stop`
    Stop(String),
    /// `vm start`
    Start(String),
    /// `vm restart`
    Restart(String),
    /// `vm pause`
    Pause(String),
    /// `vm resume`
    Resume(String),
    /// `vm migrate`
    Migrate(String),
    /// `vm migrate --no-wait`, and `migration cancel` of it at once.
    Cancel(String),
    /// The node of the VM is drained, and opened again.
    Drain(String),
    /// `image remove` of the image of a VM.
    RemoveImage(String, String),
    /// `vm delete`
    Delete(String),
}

impl Step {
    /// The VM it is about.
    #[must_use]
    pub fn vm(&self) -> &str {
        match self {
            Self::Create(creation) => &creation.vm,
            Self::Set(vm, _)
            | Self::Fix(vm, ..)
            | Self::Auto(vm, _)
            | Self::Bounds(vm, ..)
            | Self::Hold(vm, _)
            | Self::Release(vm)
            | Self::Stop(vm)
            | Self::Start(vm)
            | Self::Restart(vm)
            | Self::Pause(vm)
            | Self::Resume(vm)
            | Self::Migrate(vm)
            | Self::Cancel(vm)
            | Self::Drain(vm)
            | Self::RemoveImage(vm, _)
            | Self::Delete(vm) => vm,
        }
    }

    /// The command's words after `neonctl`. `wait`: the size is reached now, so it is waited for.
    #[must_use]
    pub fn words(&self, wait: bool) -> Vec<String> {
        let mut line = Line::default();
        match self {
            Self::Create(creation) => create(creation, &mut line),
            Self::Set(vm, changes) => set(vm, changes, &mut line),
            Self::Fix(vm, size, off) => {
                line.add(["vm", "scale", vm]);
                line.size(*size);
                if *off {
                    line.add(["--auto", "off"]);
                }
                if wait {
                    line.add(["--wait"]);
                }
            }
            Self::Auto(vm, on) => line.add(["vm", "scale", vm, "--auto", if *on { "on" } else { "off" }]),
            Self::Bounds(vm, min, max) => {
                let end = |size: &Size| format!("{},{}", cpu(size.cpu), memory(size.memory));
                line.add(["vm", "scale", vm, "--min", &end(min), "--max", &end(max)]);
            }
            Self::Hold(vm, size) => {
                line.add(["vm", "scale", vm]);
                line.size(*size);
                line.add(["--hold", "1h"]);
                if wait {
                    line.add(["--wait"]);
                }
            }
            Self::Release(vm) => line.add(["vm", "scale", vm, "--hold", "off"]),
            Self::Stop(vm) => line.add(["vm", "stop", vm]),
            Self::Start(vm) => line.add(["vm", "start", vm]),
            Self::Restart(vm) => line.add(["vm", "restart", vm]),
            Self::Pause(vm) => line.add(["vm", "pause", vm]),
            Self::Resume(vm) => line.add(["vm", "resume", vm]),
            Self::Migrate(vm) => line.add(["vm", "migrate", vm]),
            Self::Cancel(vm) => line.add(["vm", "migrate", vm, "--no-wait"]),
            // Not a command of neonctl: this is what a person types.
            Self::Drain(vm) => line.add(["drain", vm]),
            Self::RemoveImage(_, image) => line.add(["image", "remove", image]),
            Self::Delete(vm) => line.add(["vm", "delete", vm, "--yes"]),
        }
        line.0
    }
}

impl fmt::Display for Step {
    /// As a person types it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drain(vm) => write!(
                f,
                "NODE=$(neonctl vm get {vm} -o 'jsonpath={{.status.node}}'); kubectl drain $NODE --delete-emptydir-data \
                 --timeout 60s; kubectl uncordon $NODE"
            ),
            _ => {
                write!(
                    f,
                    "neonctl {}",
                    self.words(false).iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
                )?;
                match self {
                    Self::Cancel(vm) => write!(
                        f,
                        "; neonctl migration cancel $(neonctl migration list --vm {vm} --last -o \
                         'jsonpath={{.items[0].metadata.name}}')"
                    ),
                    _ => Ok(()),
                }
            }
        }
    }
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._/:=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{word}'") }
}

#[derive(Default)]
struct Line(Vec<String>);

impl Line {
    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.map(str::to_owned));
    }

    fn size(&mut self, size: Size) {
        self.add(["--cpu", &cpu(size.cpu), "--memory", &memory(size.memory)]);
    }

    fn bounds(&mut self, cpus: Option<Range>, memories: Option<Range>) {
        if let (Some(cpu), Some(memory)) = (cpus, memories)
            && let Some(units) = (Shape { cpu, memory, step: 8 }).units()
        {
            return self.add(["--cu", &range(units, |units| units.to_string())]);
        }
        if let Some(bounds) = cpus {
            self.add(["--cpu", &range(bounds, cpu)]);
        }
        if let Some(bounds) = memories {
            self.add(["--memory", &range(bounds, memory)]);
        }
    }
}

fn create(creation: &Creation, line: &mut Line) {
    let Creation { vm, shape, names_step, start, auto, workload, restart, image } = creation;
    line.add(["vm", "create", vm, "--image", image]);
    line.bounds(Some(shape.cpu), Some(shape.memory));
    if *names_step {
        line.add(["--memory-step", &memory(shape.step)]);
    }
    if let Some(start) = start {
        line.add(["--start-cpu", &cpu(start.cpu), "--start-memory", &memory(start.memory)]);
    }
    if !auto {
        line.add(["--no-autoscale"]);
    }
    if *restart != Restart::Always {
        line.add(["--restart", restart.word()]);
    }
    line.add(["--grace", "5s", "--wait", "--"]);
    line.add(workload.command());
}

fn set(vm: &str, changes: &Changes, line: &mut Line) {
    line.add(["vm", "set", vm]);
    line.bounds(changes.cpu, changes.memory);
    if let Some(image) = &changes.image {
        line.add(["--image", image]);
    }
    match &changes.env {
        Some((name, Some(value))) => line.add(["--env", &format!("{name}={value}")]),
        Some((name, None)) => line.add(["--env", &format!("{name}-")]),
        None => {}
    }
    if let Some(restart) = changes.restart {
        line.add(["--restart", restart.word()]);
    }
    if changes.now {
        line.add(["--restart-now"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_commands_that_can_be_typed() {
        let shape = Shape { cpu: Range::of(250, 1700), memory: Range::of(1000, 3000), step: 8 };
        let creation = Creation {
            vm: "a".into(),
            shape,
            names_step: true,
            start: None,
            auto: true,
            workload: Workload::EndsWell,
            restart: Restart::Never,
            image: "idle:1".into(),
        };
        let text = Step::Create(creation).to_string();
        assert_eq!(
            text,
            "neonctl vm create a --image idle:1 --cpu 0.25..1.70 --memory 1000Mi..3072000Ki --memory-step 8Mi --restart Never \
             --grace 5s --wait -- /bin/sh -c 'echo done; exit 0'"
        );
        let changes = Changes {
            cpu: Some(Range::of(250, 1000)),
            memory: Some(Range::of(1024, 4096)),
            env: Some(("A".into(), None)),
            ..Changes::default()
        };
        assert_eq!(Step::Set("a".into(), changes).to_string(), "neonctl vm set a --cu 1..4 --env A-");
        let hold = Step::Hold("a".into(), Size { cpu: 333, memory: 904 });
        assert_eq!(hold.to_string(), "neonctl vm scale a --cpu 333m --memory 904Mi --hold 1h");
        assert!(hold.words(true).contains(&"--wait".to_owned()));
    }
}
