//! `cgexec -g <controllers>:<group> <program> [argument…]`: a program in a control group that exists.

use std::path::{Component, Path};
use std::process::Command;

use super::{Cgroup, become_program, cgroup, refuse};

#[derive(Debug, PartialEq, Eq)]
struct Request<'a> {
    groups: Vec<&'a str>,
    program: &'a str,
    arguments: &'a [String],
}

/// Enters the groups and becomes the program.
pub(super) fn run(arguments: &[String]) -> u8 {
    let request = match parse(arguments) {
        Ok(request) => request,
        Err(problem) => return refuse(&format!("cgexec: {problem}")),
    };
    for name in &request.groups {
        let group = Cgroup::below(Path::new(cgroup::ROOT), name);
        if let Err(error) = group.write("cgroup.procs", "0") {
            let hint =
                if group.path().exists() { "" } else { "; groups are made by cgconfigparser or mkdir" };
            return refuse(&format!("cgexec: enter control group {name:?}: {error}{hint}"));
        }
    }
    // As by a shell: found in PATH if it has no slash.
    let mut command = Command::new(request.program);
    command.args(request.arguments);
    become_program(command)
}

fn parse(arguments: &[String]) -> Result<Request<'_>, String> {
    const USAGE: &str = "usage: cgexec -g <controllers>:<group> <program> [argument…]";
    let mut groups = Vec::new();
    let mut rest = arguments;
    loop {
        match rest {
            [flag, group, after @ ..] if flag == "-g" => {
                groups.push(name(group)?);
                rest = after;
            }
            [flag, after @ ..] if flag == "--sticky" => rest = after,
            [flag, ..] if flag.starts_with('-') => return Err(format!("unknown flag {flag}; {USAGE}")),
            [program, arguments @ ..] if !groups.is_empty() => {
                return Ok(Request { groups, program, arguments });
            }
            _ => return Err(USAGE.to_owned()),
        }
    }
}

/// The group in `controllers:group`; in version 2 a group has all controllers.
fn name(text: &str) -> Result<&str, String> {
    let group = text.split_once(':').map(|(_, group)| group.trim_matches('/'));
    let below = |group: &&str| Path::new(group).components().all(|part| matches!(part, Component::Normal(_)));
    group.filter(below).ok_or_else(|| format!("-g: {text:?} is not <controllers>:<group>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn flags_are_those_of_the_cgroup_tools() {
        let line = words("-g memory:neon-test allocate-loop 256 2280");
        let request = parse(&line).unwrap();
        assert_eq!((request.groups, request.program), (vec!["neon-test"], "allocate-loop"));
        assert_eq!(request.arguments, ["256", "2280"]);
        let line = words("--sticky -g cpu,memory:/a/b -g *:c sh -c true");
        let request = parse(&line).unwrap();
        assert_eq!((request.groups, request.program, request.arguments.len()), (vec!["a/b", "c"], "sh", 2));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, part) in [
            ("", "usage"),
            ("sh", "usage"),
            ("-g memory:x", "usage"),
            ("-g x sh", "\"x\" is not"),
            ("-g memory:../x sh", "is not"),
            ("-z sh", "unknown flag -z"),
        ] {
            let problem = parse(&words(line)).unwrap_err();
            assert!(problem.contains(part), "{line}: {problem}");
        }
        assert_eq!(run(&words("-g memory:no/such/group true")), 1);
    }
}
