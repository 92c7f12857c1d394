//! A small shell for images that bring none.
//!
//! Words with quotes and variables, `;`, `&&`, `||`, `|` not, redirection of input and output, the commands of
//! [`builtin`], and programs by path or by `PATH`. It is for looking around, not for scripts.

mod builtin;
mod change;
mod inspect;
mod syntax;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, IsTerminal as _, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use syntax::{Join, Redirect, Statement};
use tokio::signal::unix::{Signal as Interrupts, SignalKind};

/// Status of a line that cannot be understood.
const USAGE: u8 = 2;
/// Status when the program cannot be run.
const NOT_EXECUTABLE: u8 = 126;
/// Status when there is no such program.
const NOT_FOUND: u8 = 127;

/// Runs `-c text`, a script, or reads commands from standard input; the arguments are those after `shell`.
/// Returns the exit status, 0–255.
pub fn run(arguments: &[String]) -> u8 {
    let mut shell = Shell::default();
    match arguments {
        [] => shell.interact(),
        [flag, text, ..] if flag == "-c" => shell.text(text),
        [flag] if flag == "-c" => complain("-c: what?", USAGE),
        [script, ..] => match std::fs::read_to_string(script) {
            Ok(text) => shell.text(&text),
            Err(error) => complain(&format!("{script}: {error}"), NOT_FOUND),
        },
    }
}

/// Runs a command of the shell itself, such as `ls`. None: it has none of that name.
pub fn command(name: &str, arguments: &[String]) -> Option<u8> {
    let mut output = io::BufWriter::new(io::stdout());
    let done = builtin::run(&mut Shell::default(), name, arguments, None, &mut output)?;
    Some(done.unwrap_or_else(|error| complain(&format!("{name}: {error}"), 1)))
}

#[derive(Debug, Default)]
struct Shell {
    status: u8,
    /// Set by `exit`.
    over: bool,
    /// Variables that are not, or no longer, as the environment has them; none: removed.
    variables: BTreeMap<String, Option<String>>,
}

impl Shell {
    fn interact(&mut self) -> u8 {
        let input = io::stdin();
        let prompts = input.is_terminal();
        // Interrupts are for what runs in the foreground. A handler, unlike ignoring them, is not passed on to it.
        let handlers = if prompts { catch_interrupts() } else { Ok(None) };
        if let Err(error) = &handlers {
            let _ = complain(&format!("interrupts will end the shell: {error}"), 0);
        }
        let mut line = String::new();
        while !self.over {
            if prompts {
                let place = std::env::current_dir().unwrap_or_default();
                let _ = write!(io::stderr(), "{} # ", place.display());
            }
            line.clear();
            match input.lock().read_line(&mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {
                    self.text(&line);
                }
            }
        }
        self.status
    }

    fn text(&mut self, text: &str) -> u8 {
        for line in text.lines() {
            if self.over {
                break;
            }
            match syntax::parse(line) {
                Ok(statements) => self.statements(&statements),
                Err(why) => self.status = complain(why, USAGE),
            }
        }
        self.status
    }

    fn variable(&self, name: &str) -> Option<String> {
        if name == "?" {
            return Some(self.status.to_string());
        }
        match self.variables.get(name) {
            Some(value) => value.clone(),
            None => std::env::var(name).ok(),
        }
    }

    /// All variables as a program would see them.
    fn environment(&self) -> BTreeMap<String, String> {
        let lossy = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        let mut all: BTreeMap<_, _> =
            std::env::vars_os().map(|(name, value)| (lossy(name), lossy(value))).collect();
        for (name, value) in &self.variables {
            match value {
                Some(value) => all.insert(name.clone(), value.clone()),
                None => all.remove(name),
            };
        }
        all
    }

    fn statements(&mut self, statements: &[Statement]) {
        for statement in statements {
            let skipped = match statement.join {
                Join::Always => false,
                Join::IfOk => self.status != 0,
                Join::IfFailed => self.status == 0,
            };
            if !skipped && !self.over {
                self.status = self.statement(statement);
            }
        }
    }

    fn statement(&mut self, statement: &Statement) -> u8 {
        let words: Vec<_> =
            statement.words.iter().map(|word| word.expand(|name| self.variable(name))).collect();
        let Some((name, arguments)) = words.split_first() else { return 0 };
        let (mut input, mut output) = (None, None);
        for redirect in &statement.redirects {
            let (Redirect::Input(path) | Redirect::Output(path, _)) = redirect;
            let path = path.expand(|name| self.variable(name));
            let opened = match redirect {
                Redirect::Input(_) => File::open(&path).map(|file| input = Some(file)),
                Redirect::Output(_, append) => {
                    let mut options = OpenOptions::new();
                    let opened =
                        options.create(true).write(true).append(*append).truncate(!append).open(&path);
                    opened.map(|file| output = Some(file))
                }
            };
            if let Err(error) = opened {
                return complain(&format!("{path}: {error}"), 1);
            }
        }
        let written = match output.as_ref().map(File::try_clone).transpose() {
            Ok(Some(file)) => {
                builtin::run(self, name, arguments, input.as_ref(), &mut io::BufWriter::new(file))
            }
            _ => builtin::run(self, name, arguments, input.as_ref(), &mut io::BufWriter::new(io::stdout())),
        };
        match written {
            Some(Ok(status)) => status,
            Some(Err(error)) => complain(&format!("{name}: {error}"), 1),
            None => self.program(name, arguments, input, output),
        }
    }

    fn program(&self, name: &str, arguments: &[String], input: Option<File>, output: Option<File>) -> u8 {
        let mut command = Command::new(name);
        command.args(arguments).env_clear().envs(self.environment());
        if let Some(input) = input {
            command.stdin(Stdio::from(input));
        }
        if let Some(output) = output {
            command.stdout(Stdio::from(output));
        }
        match command.status() {
            Ok(status) => {
                let signal = || status.signal().and_then(|signal| u8::try_from(128 + signal).ok());
                status.code().and_then(|code| u8::try_from(code).ok()).or_else(signal).unwrap_or(u8::MAX)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                complain(&format!("{name}: not found; `help` lists what is built in"), NOT_FOUND)
            }
            Err(error) => complain(&format!("{name}: {error}"), NOT_EXECUTABLE),
        }
    }
}

/// Installs handlers that do nothing, for as long as the result lives.
fn catch_interrupts() -> io::Result<Option<(tokio::runtime::Runtime, [Interrupts; 2])>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let handlers = {
        let _entered = runtime.enter();
        [
            tokio::signal::unix::signal(SignalKind::interrupt())?,
            tokio::signal::unix::signal(SignalKind::quit())?,
        ]
    };
    Ok(Some((runtime, handlers)))
}

fn complain(why: &str, status: u8) -> u8 {
    let _ = writeln!(io::stderr(), "shell: {why}");
    status
}

fn usage(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> u8 {
        run(&["-c".to_owned(), text.to_owned()])
    }

    #[test]
    fn statuses_are_those_of_the_last_command() {
        assert_eq!(status("exit 3"), 3);
        assert_eq!(status("exit 3; exit 4"), 3);
        assert_eq!(status("/nowhere/at/all"), NOT_FOUND);
        assert_eq!(status("echo 'open"), USAGE);
        assert_eq!(status("cd /nowhere && exit 5"), 1);
        assert_eq!(status("cd /nowhere || exit 5"), 5);
        assert_eq!(run(&["/nowhere".to_owned()]), NOT_FOUND);
    }

    #[test]
    fn files_are_written_and_read() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("a b");
        let path = file.display();
        assert_eq!(status(&format!("export X=5; echo one $X > '{path}'; echo two >> \"{path}\"")), 0);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "one 5\ntwo\n");
        let copy = root.path().join("copy");
        assert_eq!(status(&format!("cat < '{path}' > {}", copy.display())), 0);
        assert_eq!(std::fs::read_to_string(&copy).unwrap(), "one 5\ntwo\n");
    }

    #[test]
    fn a_disk_is_moved_as_an_init_container_does() {
        let root = tempfile::tempdir().unwrap();
        let (disk, images) = (root.path().join("disk"), root.path().join("images"));
        std::fs::write(&disk, "disk").unwrap();
        std::fs::create_dir(&images).unwrap();
        let (from, to) = (disk.display(), images.display());
        let uid = rustix::process::getuid().as_raw();
        let line =
            format!("cp {from} {to}/copy && mv {from} {to} && chown {uid} {to}/disk && sysctl kernel.ostype");
        assert_eq!(status(&format!("{line} > /dev/null")), 0);
        assert!(!disk.exists() && images.join("disk").exists() && images.join("copy").exists());
        assert_eq!(status("mv /nowhere/x /tmp 2>/dev/null"), 1);
        assert_eq!(status("chown missing-user / 2>/dev/null || sysctl ../x"), 1);
    }

    #[test]
    fn looking_around_works_here() {
        for command in
            ["ls -l /", "ps", "df", "free", "ip", "mount", "uname -a", "hostname", "pwd", "env", "help"]
        {
            assert_eq!(status(&format!("{command} > /dev/null")), 0, "{command}");
        }
        assert_eq!(status("kill -0 x 2>/dev/null"), 1);
    }
}
