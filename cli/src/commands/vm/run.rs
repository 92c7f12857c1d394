//! `vm run`: what `vm build` and `vm create` do, one after the other; then the streams of the workload, or `vm console`.

use clap::Parser as _;
use kube::api::DeleteParams;
use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::{Attach, Phase};

use super::attach::End;
use super::waiting::until;
use super::{attach, build, console, create, logs};
use crate::args::vm::{Command, Run};
use crate::args::{self, Args};
use crate::commands::job::Stop;
use crate::commands::resource::NamespaceClient;
use crate::commands::watching::WaitProgress;
use crate::connect::block_on;
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;
use crate::report::Report;
use crate::settings::Settings;

/// Longest time until the VM has a pod, or has ended.
const START: std::time::Duration = std::time::Duration::from_secs(300);
/// Exit code of a VM whose workload ended without one.
const NO_CODE: u8 = 125;

pub(super) fn run(env: &Env, settings: &Settings, args: &Run, quiet: bool) -> Result<Report> {
    let name = args.name.clone().unwrap_or_else(random_name);
    if args.from.is_some()
        && let Command::Build(build) = command(&build_words(args, &name))?
    {
        build::run(env, settings, &build, quiet)?;
    }
    let Command::Create(mut create) = command(&create_words(args, &name))? else {
        return Err(unparsed("vm create"));
    };
    create.attach = attach_of(args);
    let mut no_way = String::new();
    if create.attach.is_some()
        && let Some(lack) = block_on(attach::lacks(settings)).unwrap_or_default()
    {
        if args.interactive {
            return Err(Error::new(Code::Denied, "vm run -i cannot reach the workload").cause(lack));
        }
        (create.attach, no_way) = (None, lack);
    }
    let created = create::run(settings, &create, quiet)?;
    if args.detach {
        return Ok(created);
    }
    let reporter = Reporter::lines(quiet);
    reporter.show(&format!(
        "virtualmachine/{name} created; Ctrl-C {}",
        if args.rm { "deletes it" } else { "detaches" }
    ));
    watch_interrupt(settings.clone(), name.clone(), args.rm);
    block_on(started(settings, &name))?;
    let streams = match create.attach {
        Some(_) => block_on(attach::run(settings, &name, args.interactive)),
        None => Ok(End::NoWay(no_way)),
    };
    let shown = match streams {
        Ok(End::Ended | End::NotReached) => Report::text(String::new()),
        // The reader of the output has seen enough.
        Ok(End::Closed) => {
            remove(settings, args, &name);
            return Ok(Report::text(String::new()));
        }
        Ok(End::NoWay(why)) if !args.interactive => {
            let report = shown(settings, args, &name, quiet)?;
            let note = format!("these are lines of the log, not the workload's bytes: {why}");
            if why.is_empty() { report } else { report.note(note) }
        }
        failed => {
            remove(settings, args, &name);
            return Err(no_streams(failed, args, &name));
        }
    };
    let (settings, args) = (settings.clone(), args.clone());
    let then = move || {
        let ended = block_on(ended(&settings, &name));
        remove(&settings, &args, &name);
        ended.unwrap_or(NO_CODE)
    };
    Ok(Report { then: Some(Box::new(then)), ..shown })
}

/// Deletes the VM if that was requested.
fn remove(settings: &Settings, args: &Run, name: &str) {
    if args.rm
        && let Err(error) = block_on(delete(settings, name))
    {
        Reporter::lines(false).show(&format!("{name} is not deleted: {}", error.message));
    }
}

/// Streams that the workload has from here; none for a console, which has everything that the guest prints.
fn attach_of(args: &Run) -> Option<Attach> {
    match args.interactive {
        _ if args.detach || args.console => None,
        true => Some(Attach::InputAndOutput),
        false => Some(Attach::Output),
    }
}

/// Why the workload's streams are not here any more, and where its output is.
fn no_streams(failed: Result<End>, args: &Run, name: &str) -> Error {
    let error = match failed {
        Err(error) => error,
        Ok(end) => {
            let why = if let End::NoWay(why) = end { why } else { String::new() };
            Error::new(Code::Failed, format!("the standard input of {name} cannot be reached")).cause(why)
        }
    };
    if args.rm {
        error
    } else {
        error.hint(format!("see what it wrote: neonctl vm logs {name} --source guest"))
    }
}

fn shown(settings: &Settings, args: &Run, name: &str, quiet: bool) -> Result<Report> {
    let mut words = vec!["vm", if args.console { "console" } else { "logs" }, name];
    if !args.console {
        words.extend(["--source", "guest", "--follow"]);
    }
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    match command(&words)? {
        Command::Console(args) => console::run(settings, &args, quiet),
        Command::Logs(args) => logs::run(settings, &args),
        _ => Err(unparsed("vm logs")),
    }
}

/// The arguments of another command of `vm`, from the words that a person would type.
fn command(words: &[String]) -> Result<Command> {
    let line = std::iter::once("neonctl".to_owned()).chain(words.iter().cloned());
    match Args::try_parse_from(line) {
        Ok(Args { command: args::Command::Vm(command), .. }) => Ok(command),
        Ok(_) => Err(unparsed("vm")),
        Err(error) => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            Err(Error::new(Code::Usage, first.to_owned()))
        }
    }
}

fn unparsed(what: &str) -> Error {
    Error::new(Code::Failed, format!("internal failure: the arguments of {what} cannot be read"))
}

fn tag_of(args: &Run, name: &str) -> String {
    args.tag.clone().unwrap_or_else(|| format!("{name}:run"))
}

fn build_words(args: &Run, name: &str) -> Vec<String> {
    let from = args.from.clone().unwrap_or_default();
    let mut words = ["vm", "build", "--from", &from, "--owner", &args.owner, "-t", &tag_of(args, name)]
        .map(str::to_owned)
        .to_vec();
    if args.push {
        words.push("--push".to_owned());
    }
    // A directory has no program of its own.
    if !args.command.is_empty() {
        words.push("--".to_owned());
        words.extend(args.command.iter().cloned());
    }
    words
}

fn create_words(args: &Run, name: &str) -> Vec<String> {
    let image = args.image.clone().unwrap_or_else(|| tag_of(args, name));
    let restart = if args.detach { "Always" } else { "Never" };
    let mut words =
        ["vm", "create", name, "--image", &image, "--restart", restart].map(str::to_owned).to_vec();
    let mut flag = |flag: &str, value: &String| words.extend([flag.to_owned(), value.clone()]);
    for (name, value) in [("--cpu", &args.cpu), ("--memory", &args.memory), ("--cu", &args.cu)] {
        value.iter().for_each(|value| flag(name, value));
    }
    for (name, values) in [("--port", &args.port), ("--disk", &args.disk), ("--env", &args.env)] {
        values.iter().for_each(|value| flag(name, value));
    }
    if args.detach {
        words.push("--wait".to_owned());
    }
    // A built disk has the command already, with the rules of images.
    if args.from.is_none() && !args.command.is_empty() {
        words.push("--".to_owned());
        words.extend(args.command.iter().cloned());
    }
    words
}

fn random_name() -> String {
    let text: String = uuid_words().chars().filter(char::is_ascii_alphanumeric).take(5).collect();
    format!("run-{}", text.to_lowercase())
}

fn uuid_words() -> String {
    use std::hash::{BuildHasher as _, Hasher as _};
    let hash = std::collections::hash_map::RandomState::new().build_hasher().finish();
    format!("{hash:016x}")
}

/// Waits until the VM has a container, or has ended.
async fn started(settings: &Settings, name: &str) -> Result<()> {
    let client = NamespaceClient::open(settings).await?;
    let name = name.to_owned();
    let look = |machine: Option<&VirtualMachine>| {
        let Some(machine) = machine else {
            return WaitProgress::Never(Error::new(Code::NotFound, format!("{name} was deleted")));
        };
        let status = machine.status.clone().unwrap_or_default();
        let booting = status.conditions.iter().any(|one| one.type_ == "Available" && one.reason == "Booting");
        match status.phase {
            Some(Phase::Pending) | None if !booting => WaitProgress::NotYet,
            _ => WaitProgress::Done,
        }
    };
    until(&client, &name.clone(), START, "phase=Running", look).await.map(drop)
}

/// The exit code of the workload, once the VM has ended.
async fn ended(settings: &Settings, name: &str) -> Result<u8> {
    let client = NamespaceClient::open(settings).await?;
    let look = |machine: Option<&VirtualMachine>| match machine.and_then(|machine| machine.status.as_ref()) {
        Some(status) if matches!(status.phase, Some(Phase::Succeeded | Phase::Failed)) => WaitProgress::Done,
        Some(_) => WaitProgress::NotYet,
        None => WaitProgress::Done,
    };
    // The log has ended: the phase follows at once.
    let waited = until(&client, name, std::time::Duration::from_secs(30), "phase=Succeeded", look).await?;
    let status = waited.object.and_then(|machine| machine.status).unwrap_or_default();
    let Some(exit) = status.last_exit else { return Ok(NO_CODE) };
    if exit.exit_code != Some(0) {
        Reporter::lines(false).show(&format!("{name} ended: {}: {}", exit.reason, exit.message));
    }
    let good = status.phase == Some(Phase::Succeeded);
    let code = exit.exit_code.and_then(|code| u8::try_from(code).ok());
    Ok(code.unwrap_or(if good { 0 } else { NO_CODE }))
}

async fn delete(settings: &Settings, name: &str) -> Result<()> {
    let client = NamespaceClient::open(settings).await?;
    let api = client.api::<VirtualMachine>();
    let attempt = format!("cannot delete {name}");
    client.connection.within(&attempt, api.delete(name, &DeleteParams::default())).await.map(drop)
}

/// Ctrl-C ends this process; the VM goes with it if that was requested.
#[expect(clippy::exit, reason = "the main thread waits for the next line of the log, which may never come")]
fn watch_interrupt(settings: Settings, name: String, rm: bool) {
    std::thread::spawn(move || {
        let interrupted = block_on(async {
            Stop::listen()?.requested().await;
            if rm { delete(&settings, &name).await } else { Ok(()) }
        });
        let text = match (rm, interrupted) {
            (true, Ok(())) => format!("virtualmachine/{name} is being deleted"),
            (true, Err(error)) => format!("{name} is not deleted: {}", error.message),
            (false, _) => {
                format!("virtualmachine/{name} continues; follow it again: neonctl vm logs {name} -f")
            }
        };
        Reporter::lines(false).show(&text);
        std::process::exit(i32::from(Code::Interrupted.number()));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> (String, String) {
        let line = ["vm", "run"].into_iter().chain(line.split(' ')).map(str::to_owned).collect::<Vec<_>>();
        let Command::Run(args) = command(&line).unwrap() else { panic!("not run") };
        let name = args.name.clone().unwrap_or_else(random_name);
        let build = if args.from.is_some() { build_words(&args, &name).join(" ") } else { String::new() };
        let create = create_words(&args, &name);
        assert!(matches!(command(&create).unwrap(), Command::Create(_)));
        (build, create.join(" "))
    }

    #[test]
    fn the_steps_are_what_a_person_would_type() {
        let (build, create) = words("a --from ./root --owner root --cu 1..2 --port 80 -- /bin/sh -c id");
        assert_eq!(build, "vm build --from ./root --owner root -t a:run -- /bin/sh -c id");
        assert_eq!(create, "vm create a --image a:run --restart Never --cu 1..2 --port 80");
        let (build, create) = words("a --image i:1 -d --env A=1 -- /bin/x -y");
        assert_eq!(build, "");
        assert_eq!(create, "vm create a --image i:1 --restart Always --env A=1 --wait -- /bin/x -y");
        let (_, create) = words("--image i:1");
        let name = create.split(' ').nth(2).unwrap();
        assert!(name.starts_with("run-") && name.len() == 9, "{name}");
    }
}
