//! From instructions to settings of an image and actions on its tree. Pure.

use std::collections::{BTreeMap, BTreeSet};

use neonvm_types::guest::Process;

use super::Fault;
use super::parse::{Dockerfile, Instruction, Step, Words};
use super::words::expand;

/// What is done to the tree of the base image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Files of the context.
    Copy(Copy),
    /// A directory that must exist.
    Directory { line: usize, path: String },
}

impl Action {
    /// The same wherever it stands: comments do not change an image.
    pub(super) fn without_line(self) -> Self {
        match self {
            Self::Copy(copy) => Self::Copy(Copy { line: 0, ..copy }),
            Self::Directory { path, .. } => Self::Directory { line: 0, path },
        }
    }
}

/// Files of the context, and where they go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Copy {
    pub(super) line: usize,
    /// Paths or patterns in the context.
    pub(super) sources: Vec<String>,
    /// Absolute path in the image.
    pub(super) target: String,
    /// The target is a directory, whether it exists or not.
    pub(super) into_directory: bool,
    pub(super) owner: Option<String>,
    pub(super) mode: Option<u16>,
}

/// What a Dockerfile makes of a base image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) process: Process,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) actions: Vec<Action>,
    /// For the user.
    pub(super) notes: Vec<String>,
}

/// Arguments of the build by name, and the platform.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    pub(super) arguments: BTreeMap<String, String>,
    pub(super) os: String,
    pub(super) architecture: String,
}

impl Given {
    /// Arguments that every build has.
    fn predefined(&self, name: &str) -> Option<String> {
        Some(match name {
            "TARGETOS" | "BUILDOS" => self.os.clone(),
            "TARGETARCH" | "BUILDARCH" => self.architecture.clone(),
            "TARGETPLATFORM" | "BUILDPLATFORM" => format!("{}/{}", self.os, self.architecture),
            _ => return None,
        })
    }
}

/// The image that `FROM` names, and its line.
pub(super) fn base(file: &Dockerfile, given: &Given) -> Result<(usize, String), Fault> {
    let mut arguments = BTreeMap::new();
    for Step { line, instruction } in &file.steps {
        let value = |name: &str| arguments.get(name).cloned();
        let full =
            |text: &str| expand(text, file.escape, &value).map_err(|problem| Fault::new(*line, problem));
        match instruction {
            Instruction::From(image) => {
                let image = full(image)?;
                if image.is_empty() {
                    return Err(Fault::new(*line, "FROM names no image: a variable is empty").remedy(
                        "give the ARG before FROM a default, or set it with --build-arg NAME=VALUE",
                    ));
                }
                return Ok((*line, image));
            }
            Instruction::Arg(all) => {
                let mut found = Vec::new();
                for (name, default) in all {
                    let default = default.as_deref().map(full).transpose()?;
                    let value =
                        given.arguments.get(name).cloned().or(default).or_else(|| given.predefined(name));
                    found.extend(value.map(|value| (name.clone(), value)));
                }
                arguments.extend(found);
            }
            _ => {}
        }
    }
    Err(Fault::new(1, "there is no FROM"))
}

/// Carries out all instructions behind `FROM` on the settings of the base image.
pub(super) fn evaluate(
    file: &Dockerfile,
    given: &Given,
    process: Process,
    labels: BTreeMap<String, String>,
) -> Result<Outcome, Fault> {
    let mut state = State {
        escape: file.escape,
        given,
        globals: BTreeMap::new(),
        arguments: BTreeMap::new(),
        shell: vec!["/bin/sh".to_owned(), "-c".to_owned()],
        has_cmd: false,
        in_stage: false,
        out: Outcome { process, labels, ..Outcome::default() },
    };
    for step in &file.steps {
        state.step(step)?;
    }
    let declared: BTreeSet<&String> = state.arguments.keys().chain(state.globals.keys()).collect();
    let unused = given.arguments.keys().filter(|name| !declared.contains(name));
    let notes: Vec<String> =
        unused.map(|name| format!("--build-arg {name}: the Dockerfile has no ARG {name}")).collect();
    state.out.notes.extend(notes);
    Ok(state.out)
}

struct State<'a> {
    escape: char,
    given: &'a Given,
    /// Declared before `FROM`.
    globals: BTreeMap<String, Option<String>>,
    arguments: BTreeMap<String, Option<String>>,
    shell: Vec<String>,
    has_cmd: bool,
    in_stage: bool,
    out: Outcome,
}

impl State<'_> {
    fn expand(&self, line: usize, text: &str) -> Result<String, Fault> {
        let value = |name: &str| {
            let own =
                self.out.process.env.iter().rev().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            own.map(str::to_owned).or_else(|| self.arguments.get(name).cloned().flatten())
        };
        let text = expand(text, self.escape, &value).map_err(|problem| Fault::new(line, problem))?;
        if text.contains('\0') { Err(Fault::new(line, "a text contains a NUL")) } else { Ok(text) }
    }

    fn needed(&self, line: usize, keyword: &str, text: &str) -> Result<String, Fault> {
        let text = self.expand(line, text)?;
        if text.is_empty() {
            Err(Fault::new(line, format!("{keyword} is empty: a variable has no value")))
        } else {
            Ok(text)
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), Fault> {
        let line = step.line;
        match &step.instruction {
            Instruction::From(_) => self.in_stage = true,
            Instruction::Arg(all) => self.declare(line, all)?,
            Instruction::Env(pairs) => {
                // All values are those before the line.
                let mut new = Vec::new();
                for (name, value) in pairs {
                    new.push((self.needed(line, "ENV", name)?, self.expand(line, value)?));
                }
                new.into_iter().for_each(|(name, value)| self.set(&name, &value));
            }
            Instruction::Label(pairs) => {
                for (name, value) in pairs {
                    let (name, value) = (self.needed(line, "LABEL", name)?, self.expand(line, value)?);
                    self.out.labels.insert(name, value);
                }
            }
            Instruction::Copy(copy) => self.copy(line, copy)?,
            Instruction::Workdir(path) => {
                let path = self.needed(line, "WORKDIR", path)?;
                let path = absolute(&self.out.process.working_dir, &path);
                self.out.process.working_dir.clone_from(&path);
                self.out.actions.push(Action::Directory { line, path });
            }
            Instruction::User(user) => self.out.process.user = self.needed(line, "USER", user)?,
            Instruction::StopSignal(signal) => {
                self.out.process.stop_signal = self.needed(line, "STOPSIGNAL", signal)?;
            }
            Instruction::Entrypoint(words) => {
                self.out.process.entrypoint = self.command(words);
                // The arguments of the base image were for its program.
                if !self.has_cmd {
                    self.out.process.cmd.clear();
                }
            }
            Instruction::Cmd(words) => {
                self.has_cmd = true;
                self.out.process.cmd = self.command(words);
            }
            Instruction::Shell(shell) => self.shell.clone_from(shell),
            Instruction::Expose(ports) => self.expose(line, ports)?,
            Instruction::Ignored(keyword) => {
                self.out.notes.push(format!("line {line}: {keyword} has no effect on a VM"));
            }
        }
        Ok(())
    }

    fn declare(&mut self, line: usize, all: &[(String, Option<String>)]) -> Result<(), Fault> {
        for (name, default) in all {
            let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !is_name {
                return Err(Fault::new(line, format!("ARG: {name:?} is not a name"))
                    .remedy("write ARG NAME or ARG NAME=DEFAULT"));
            }
            let default = default.as_deref().map(|text| self.expand(line, text)).transpose()?;
            let known = || self.globals.get(name).cloned().flatten().or_else(|| self.given.predefined(name));
            let value = self.given.arguments.get(name).cloned().or(default).or_else(known);
            let place = if self.in_stage { &mut self.arguments } else { &mut self.globals };
            place.insert(name.clone(), value);
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) {
        let env = &mut self.out.process.env;
        env.retain(|pair| pair.split('=').next() != Some(name));
        env.push(format!("{name}={value}"));
    }

    fn command(&self, words: &Words) -> Vec<String> {
        match words {
            Words::Exec(words) => words.clone(),
            Words::Shell(text) => self.shell.iter().cloned().chain([text.clone()]).collect(),
        }
    }

    fn copy(&mut self, line: usize, copy: &super::parse::Copy) -> Result<(), Fault> {
        let sources: Vec<String> = copy
            .sources
            .iter()
            .map(|text| self.needed(line, "a source of COPY", text))
            .collect::<Result<_, _>>()?;
        let written = self.needed(line, "the target of COPY", &copy.target)?;
        let owner = copy.owner.as_deref().map(|text| self.needed(line, "--chown", text)).transpose()?;
        let mode = match copy.mode.as_deref().map(|text| self.needed(line, "--chmod", text)).transpose()? {
            None => None,
            Some(text) => match u16::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o7777) {
                Some(mode) => Some(mode),
                None => {
                    return Err(Fault::new(line, format!("--chmod: {text:?} is not valid"))
                        .remedy("write octal permissions, such as 0755"));
                }
            },
        };
        let target = absolute(&self.out.process.working_dir, &written);
        let into_directory = written.ends_with('/') || written.ends_with("/.") || written == ".";
        self.out.actions.push(Action::Copy(Copy { line, sources, target, into_directory, owner, mode }));
        Ok(())
    }

    fn expose(&mut self, line: usize, ports: &[String]) -> Result<(), Fault> {
        let mut shown = Vec::new();
        for text in ports {
            let text = self.needed(line, "EXPOSE", text)?;
            let (range, protocol) = text.split_once('/').unwrap_or((&text, "tcp"));
            let is_port = |text: &str| text.parse::<u16>().is_ok_and(|port| port > 0);
            let good = range.split_once('-').map_or(is_port(range), |(a, b)| is_port(a) && is_port(b));
            if !good || !matches!(protocol.to_lowercase().as_str(), "tcp" | "udp" | "sctp") {
                return Err(Fault::new(line, format!("EXPOSE: {text:?} is not a port"))
                    .remedy("write 8080 or 53/udp"));
            }
            shown.push(format!("--port {text}"));
        }
        let flags = shown.join(" ");
        self.out.notes.push(format!(
            "line {line}: a disk has no ports; give them to the VM: neonctl vm create … {flags}"
        ));
        Ok(())
    }
}

/// An absolute path without `.`, `..` and empty parts.
fn absolute(directory: &str, path: &str) -> String {
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{directory}/{path}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}
