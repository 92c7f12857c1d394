//! `vm-builder`: the flags of the tool it replaces, in Go's style (`-src` and `--src` alike), on our engine.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people and scripts")]

mod flags;

use std::process::ExitCode;

use neonvm_builder::engine::{self, Reporter, Step};
use neonvm_builder::source::Progress;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let flags = match flags::Flags::read(arguments) {
        Ok(flags) => flags,
        Err(flags::Stop::Print(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(flags::Stop::Wrong(text)) => {
            eprint!("{text}");
            return ExitCode::from(2);
        }
    };
    let lines = Lines { quiet: flags.quiet };
    for note in flags.notes() {
        lines.note(note);
    }
    let request = match flags.request() {
        Ok(request) => request,
        Err(text) => {
            eprintln!("error: {text}");
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(engine::build(&request, &lines)) {
        Ok(built) => {
            println!("{}", built.reference.unwrap_or_default());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            for cause in error.causes() {
                eprintln!("  caused by: {cause}");
            }
            if let Some(hint) = error.hint() {
                // Flags in hints are those of the newer tool.
                let tool = if hint.contains(" -") { "with neonctl vm build: " } else { "" };
                eprintln!("  hint: {tool}{hint}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Progress as lines on standard error.
struct Lines {
    quiet: bool,
}

impl Lines {
    fn print(&self, text: &str) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }
}

impl Progress for Lines {
    fn started(&self, task: &str, _: Option<u64>) {
        self.print(&format!("{task} ..."));
    }

    fn advanced(&self, _: &str, _: u64) {}

    fn finished(&self, task: &str) {
        self.print(&format!("{task} done"));
    }

    fn note(&self, text: &str) {
        self.print(&format!("note: {text}"));
    }

    fn line(&self, text: &str) {
        self.print(text);
    }
}

impl Reporter for Lines {
    fn begin(&self, step: Step, detail: &str) {
        self.print(&format!("{}: {detail}", step.name()));
    }

    fn end(&self, step: Step, detail: &str) {
        self.print(&format!("{}: {detail}", step.name()));
    }
}
