//! A session of one page: a shell that executes its commands.

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use neonvm_e2e::book::{Command, Page, Step, compare};

/// Time for one command.
const PATIENCE: Duration = Duration::from_secs(300);
/// Ends what a command printed; followed by its exit code.
const MARK: &str = "\u{1}end-of-command ";

/// The shell, its output, and the directories that it works in.
pub(crate) struct Session {
    shell: Child,
    input: ChildStdin,
    output: Receiver<Vec<u8>>,
    home: tempfile::TempDir,
    programs: PathBuf,
}

impl Session {
    /// Starts a shell in an empty home and a working directory with the examples.
    pub(crate) fn start() -> Self {
        let programs = neonvm_e2e::programs().unwrap();
        neonvm_e2e::guest().unwrap();
        let home = tempfile::Builder::new().prefix("neonvm-book-").tempdir().unwrap();
        let work = home.path().join("work");
        std::fs::create_dir(&work).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        std::os::unix::fs::symlink(root.join("examples"), work.join("examples")).unwrap();
        let mut shell = bash(&programs, home.path(), &root)
            .current_dir(&work)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A group of its own: background jobs end with it.
            .process_group(0)
            .spawn()
            .unwrap();
        let (input, mut from) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                if sender.send(buffer.get(..count).unwrap_or_default().to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut session = Self { shell, input, output, home, programs };
        writeln!(session.input, "exec 2>&1").unwrap();
        session
    }

    /// Works through a page; the first difference ends it.
    pub(crate) fn work(&mut self, page: &Page) -> Result<(), String> {
        for step in &page.steps {
            match step {
                Step::Run(command) => self.run(command)?,
                Step::Check(_) => {}
                Step::File { name, text } => {
                    std::fs::write(self.home.path().join("work").join(name), text)
                        .map_err(|error| error.to_string())?;
                }
            }
        }
        Ok(())
    }

    fn run(&mut self, command: &Command) -> Result<(), String> {
        let begun = Instant::now();
        // Braces keep variables and jobs in this shell; the mark is written apart so that it is no part of the command.
        let text = format!("{{ {}\n}} </dev/null\nprintf '\\n\\001end-of-command %d\\n' $?\n", command.text);
        let fault = |text: String| format!("line {}: $ {}\n{text}", command.line, command.text);
        self.input.write_all(text.as_bytes()).map_err(|error| fault(error.to_string()))?;
        let (printed, code) = self.read().map_err(fault)?;
        eprintln!("$ {} # {:.1} s\n{printed}", command.text, begun.elapsed().as_secs_f64());
        if command.code.is_some_and(|expected| expected != code) {
            let expected = command.code.unwrap_or_default();
            return Err(fault(format!("exit code {code} instead of {expected}; it printed:\n{printed}")));
        }
        compare(&command.output, &printed)
            .map_err(|difference| fault(format!("{difference}; it printed:\n{printed}")))
    }

    /// What a command prints, and its exit code.
    fn read(&self) -> Result<(String, i32), String> {
        let (mut bytes, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        loop {
            let text = String::from_utf8_lossy(&bytes);
            if let Some((printed, rest)) = text.split_once(MARK)
                && let Some((code, _)) = rest.split_once('\n')
            {
                let code = code.parse().map_err(|_| format!("no exit code in {code:?}"))?;
                return Ok((printed.to_owned(), code));
            }
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(more) => bytes.extend(more),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("no end within {PATIENCE:?}; it printed:\n{text}"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("the shell ended; it printed:\n{text}"));
                }
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut end = bash(&self.programs, self.home.path(), &root);
        let _ = end
            .arg("-c")
            .arg("neonctl local down --all --delete")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if let Some(group) =
            rustix::process::Pid::from_raw(i32::try_from(self.shell.id()).unwrap_or_default())
        {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.shell.wait();
    }
}

/// A shell that knows the session's directories and nothing of the person who runs the test.
fn bash(programs: &Path, home: &Path, root: &Path) -> std::process::Command {
    let mut bash = std::process::Command::new("bash");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    bash.args(["--noprofile", "--norc"])
        .env_clear()
        .env("PATH", path)
        .env("HOME", home)
        .env("LANG", "C.UTF-8")
        // Downloads are kept between pages.
        .env("XDG_CACHE_HOME", root.join("target/book-cache"));
    bash
}
