//! Whether an image has the program that its VM is to run. Pure.

use neonvm_disk::tree::{Kind, Tree};
use neonvm_types::guest::Process;

use crate::content;

/// Where a name without a slash is looked for, if the image has no `PATH`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What is wrong with the program of an image, for its user. `has_services`: a disk with other commands needs no program.
pub(super) fn warning(tree: &Tree, process: &Process, has_services: bool) -> Option<String> {
    let Some(program) =
        process.entrypoint.iter().chain(&process.cmd).next().filter(|program| !program.is_empty())
    else {
        let text = "no program: neither the image nor this command names one, so the VM has no workload; append -- PROGRAM [ARGUMENT…]";
        return (!has_services).then(|| text.to_owned());
    };
    if is_there(tree, process, program) {
        return None;
    }
    Some(format!("the program {program:?} is not in the image, so the workload will not start"))
}

fn is_there(tree: &Tree, process: &Process, program: &str) -> bool {
    let is_file = |path: String| {
        let found = content::find(tree, path.as_bytes()).and_then(|inode| tree.get(inode));
        found.is_some_and(|inode| !matches!(inode.kind, Kind::Directory(_)))
    };
    if program.contains('/') {
        let relative = if program.starts_with('/') { "" } else { process.working_dir.as_str() };
        return is_file(format!("{relative}/{program}"));
    }
    let own = process.env.iter().rev().find_map(|pair| pair.strip_prefix("PATH="));
    own.unwrap_or(PATH).split(':').any(|directory| is_file(format!("{directory}/{program}")))
}

#[cfg(test)]
mod tests {
    use neonvm_disk::tree::{Metadata, Time};

    use super::*;
    use crate::inject;

    fn process(entrypoint: &[&str], env: &[&str], working_dir: &str) -> Process {
        let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect();
        let (entrypoint, env) = (words(entrypoint), words(env));
        Process { entrypoint, env, working_dir: working_dir.to_owned(), ..Process::default() }
    }

    #[test]
    fn a_program_is_looked_for_as_the_guest_does() {
        let mut tree = Tree::new();
        let bytes = b"x".as_slice().into();
        inject::put(&mut tree, "/usr/bin/server", 0o755, Time::default(), &bytes).unwrap();
        inject::put(&mut tree, "/opt/run", 0o755, Time::default(), &bytes).unwrap();
        tree.make_directories(b"/bin/directory", &Metadata::default()).unwrap();
        let is_good = |process: Process| warning(&tree, &process, false).is_none();
        for good in [
            process(&["/usr/bin/server", "-p"], &[], ""),
            process(&["server"], &[], ""),
            process(&["run"], &["PATH=/sbin:/opt"], ""),
            process(&["./run"], &[], "/opt"),
            process(&["bin/server"], &[], "/usr"),
        ] {
            assert!(is_good(good.clone()), "{good:?}");
        }
        for bad in [
            process(&["/bin/nosuch"], &[], ""),
            process(&["server"], &["PATH=/opt"], ""),
            process(&["run"], &[], "/opt"),
            process(&["directory"], &[], ""),
        ] {
            let text = warning(&tree, &bad, true).unwrap();
            assert!(text.contains(&format!("{:?}", bad.entrypoint[0])), "{text}");
        }
        assert!(warning(&tree, &Process::default(), false).unwrap().contains("no program"));
        assert_eq!(warning(&tree, &Process::default(), true), None);
    }
}
