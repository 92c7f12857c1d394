//! Running the distribution's programs: their lines go to the progress, the last of them into the error, and all of
//! their processes end when this one is stopped.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Progress};

/// Lines kept for the error.
const LAST_LINES: usize = 8;

/// Set by the command line when the person wants to stop; looked at between lines and programs.
pub(crate) static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Asks whatever runs to stop: programs that were started are ended, and their error is [`Error::Interrupted`].
pub(crate) fn interrupt() {
    INTERRUPTED.store(true, Ordering::SeqCst);
}

/// Whether a stop was requested.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Runs a program to its end.
pub(crate) fn run(
    command: &mut Command,
    package: &'static str,
    progress: &dyn Progress,
) -> Result<(), Error> {
    if interrupted() {
        return Err(Error::Interrupted);
    }
    let program = command.get_program().to_string_lossy().into_owned();
    // One pipe for both streams, so that the last lines are in the order in which they were written.
    let (reader, writer) = std::io::pipe().map_err(|source| failed(&program, source))?;
    let twin = writer.try_clone().map_err(|source| failed(&program, source))?;
    command.stdin(Stdio::null()).stdout(twin).stderr(writer).process_group(0);
    let mut child = command.spawn().map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => Error::Missing { program: program.clone(), package },
        _ => failed(&program, source),
    })?;
    // The command holds the writing end; while it lives there is no end of file.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    let mut output: VecDeque<String> = VecDeque::new();
    for line in BufReader::new(reader).split(b'\n') {
        let Ok(line) = line else { break };
        let line = String::from_utf8_lossy(&line).into_owned();
        progress.line(&line);
        if output.len() == LAST_LINES {
            output.pop_front();
        }
        output.push_back(line);
        if interrupted() {
            break;
        }
    }
    if interrupted() {
        group.map(|group| rustix::process::kill_process_group(group, rustix::process::Signal::KILL));
    }
    let status = child.wait().map_err(|source| failed(&program, source))?;
    if interrupted() {
        return Err(Error::Interrupted);
    }
    if status.success() {
        return Ok(());
    }
    let line = command.get_args().fold(program, |line, part| format!("{line} {}", part.to_string_lossy()));
    Err(Error::Program { program: line, status: status.to_string(), output: output.into() })
}

fn failed(program: &str, source: std::io::Error) -> Error {
    Error::File { verb: "run", path: program.into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;

    #[test]
    fn the_last_words_of_a_failed_program_are_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "seq 20; echo broken >&2; exit 3"]);
        let Err(Error::Program { status, output, .. }) = run(&mut command, "dash", &Silent) else { panic!() };
        assert_eq!((status.as_str(), output.last().map(String::as_str)), ("exit status: 3", Some("broken")));
        assert_eq!(output.len(), LAST_LINES);
    }

    #[test]
    fn a_missing_program_names_its_package() {
        let error = run(&mut Command::new("no-such-program"), "some-package", &Silent).unwrap_err();
        assert_eq!(error.to_string(), "no-such-program is not installed");
        assert_eq!(error.hint().unwrap(), "install it: apt-get install some-package");
    }
}
