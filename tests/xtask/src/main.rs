//! `cargo xtask check|test|guest|kernel|demo|bench`: what people and CI run on this repository.
//!
//! Depends on next to nothing, so that a fresh machine sees the first check after seconds. Tested by its own unit tests.

#![allow(clippy::print_stdout, reason = "a program for people; there is no result type to render")]

mod arrows;
mod bare;
mod bench;
mod budget;
mod check;
mod circles;
mod cited;
mod commit;
mod demo;
mod dist;
mod early;
mod failures;
mod foreign;
mod fuzz;
mod generated;
mod guest;
mod host;
mod images;
mod kernel;
mod lanes;
mod leftovers;
mod lines;
mod links;
mod orphans;
mod outputs;
mod package;
mod packages;
mod process;
mod run;
mod sbom;
mod shipped;
mod sizes;
mod starts;
mod strings;
mod suite;
mod tally;
mod terms;
mod tool;
mod wording;

use std::process::ExitCode;

use anyhow::Context as _;

const USAGE: &str = "usage: cargo xtask <command>

  check   format, arrows between crates, circles of imports, orphan files, sizes, links, wording, banned words, early returns in tests, generated files;
          --still leaves out the format and the generated files, for which something has to be compiled
  test    the gate: every lane in order, or those that are named; ends with one line: N passed, N failed, N skipped;
          --list names the lanes; --clean-up removes what an interrupted run left
  soak    the long, the random and the chaotic: fresh seeds, chaos, endurance, the kernel from source, a bare system;
          lanes can be named
  bare    make test and make demo from a clone, in a minimal Debian system with only Rust: --suite bookworm|trixie,
          --keep leaves the system
  host    the product on an emulated computer with KVM, cgroup v2, systemd and vhost-net: --suite bookworm|trixie, --short,
          --only CHECK, --keep leaves the host running
  guest   the program inside every VM, static and small, beside the other programs
  images  the container images of services and runner: --arch amd64|arm64, --profile dist|quick, --programs DIR of programs
          built elsewhere, --kernel DIR, and after -- arguments of buildah, podman or docker build
  kernel  the guest kernel from source, for the tests; --fetch: the distribution's kernel instead
  demo    a cluster, a VM with a database, and its size changed under load; --record FILE writes an animated SVG of it
  packages  licences, sources, bans and known weaknesses of the packages in use
  fuzz    every parser of strangers' bytes under libFuzzer (tests/fuzz): --seconds N for each, 20 if not given; names of targets
  release  the programs that are shipped, static and without symbols, in target/dist, with debug information beside them
  dist    the release as packages in target/dist: Debian packages, archives, the SBOM, SHA256SUMS; the same commit gives the same
          bytes, whose time is SOURCE_DATE_EPOCH or the commit's; --programs DIR: packs programs that were built elsewhere
  sbom    what the shipped programs are made of, as CycloneDX in the directory of releases
  bench   measure the service level objectives of SPEC.md
";

fn main() -> anyhow::Result<ExitCode> {
    let root = package::root()?;
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let args: Vec<String> = args.collect();
    let first = args.first().map(String::as_str);
    let good = match (command.as_str(), first) {
        ("check", Some("--still")) => check::run(&root, true)?,
        ("check", None) => check::run(&root, false)?,
        ("test" | "soak", Some("--clean-up")) => {
            println!("\nthe run was interrupted; what it left is removed");
            leftovers::clean_up(&root)?;
            true
        }
        ("test", Some("--list")) => lanes::list(&lanes::gate()),
        ("soak", Some("--list")) => lanes::list(&lanes::soak()),
        ("test", _) => {
            let lanes = lanes::testable(&args, host::changed::compare(&root)?);
            run::run(&root, lanes::chosen(lanes, &args)?)?
        }
        ("soak", _) => run::run(&root, lanes::chosen(lanes::soak(), &args)?)?,
        ("bare", _) => bare::run(&root, &args)?,
        ("host", _) => host::run(&root, &args)?,
        ("guest", None) => guest::run(&root)?,
        ("images", _) => images::run(&root, &args)?,
        ("kernel", Some("--fetch")) => kernel::fetch(&root)?,
        ("kernel", None) => kernel::build(&root)?,
        ("demo", Some("--clean-up")) => demo::clean_up(&root)?,
        ("demo", Some("--record")) => {
            let file = args.get(1).context("--record needs a file, such as docs/src/images/run.svg")?;
            demo::record(&root, file.as_ref())?
        }
        ("demo", None) => demo::run(&root, std::env::var_os("KEEP").is_some_and(|keep| keep == "1"))?,
        ("packages", None) => packages::run(&root)?,
        ("fuzz", _) => fuzz::run(&root, &args)?,
        ("dist", _) => dist::run(&root, &args)?,
        ("release", None) => shipped::release(&root)?,
        ("sbom", None) => {
            sbom::run(&root, &package::target(&root)?.join(shipped::DIST), &commit::time(&root)?)?
        }
        ("bench", _) => bench::bench(&root, &args)?,
        _ => {
            print!("{USAGE}");
            return Ok(ExitCode::from(2));
        }
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
