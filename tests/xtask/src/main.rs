//! `cargo xtask check|test|guest|kernel|demo|bench`: what people and CI run on this repository.
//!
//! Depends on next to nothing, so that a fresh machine sees the first check after seconds. Tested by its own unit tests.

#![allow(clippy::print_stdout, reason = "a program for people; there is no result type to render")]

mod arrows;
mod bench;
mod check;
mod demo;
mod failures;
mod generated;
mod guest;
mod kernel;
mod lanes;
mod leftovers;
mod links;
mod orphans;
mod package;
mod process;
mod sizes;
mod tally;
mod wording;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <command>

  check   arrows between crates, orphan files, file sizes, generated files, links, banned packages;
          --still leaves out the generated files, for which something has to be compiled
  test    every lane in order, or those that are named; ends with one line: N passed, N failed, N skipped;
          --clean-up removes what a run left that was broken off
  guest   the program inside every VM, static and small, beside the other programs
  kernel  the guest kernel from source, for the tests
  demo    a cluster, a virtual machine with a database, and its size changed under load
  bench   measure the promises of SPEC.md
";

fn main() -> anyhow::Result<ExitCode> {
    let root = package::root()?;
    let mut args = std::env::args().skip(1);
    let good = match args.next().as_deref() {
        Some("check") => check::run(&root, args.next().as_deref() == Some("--still"))?,
        Some("test") => match &args.collect::<Vec<_>>()[..] {
            [flag] if flag == "--clean-up" => {
                println!("\nthe test run was broken off; what it left is removed");
                leftovers::clean_up(&root)?;
                true
            }
            lanes => lanes::run(&root, lanes)?,
        },
        Some("guest") => guest::run(&root)?,
        Some("kernel") => kernel::run(&root)?,
        Some("demo") => match args.next().as_deref() {
            Some("--clean-up") => demo::clean_up(&root)?,
            _ => demo::run(&root, std::env::var_os("KEEP").is_some_and(|keep| keep == "1"))?,
        },
        Some("bench") => bench::bench(&root, &args.collect::<Vec<_>>())?,
        _ => {
            print!("{USAGE}");
            return Ok(ExitCode::from(2));
        }
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
