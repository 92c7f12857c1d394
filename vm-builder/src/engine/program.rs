//! Whether what an image is to run can start, before a VM is made for it. Pure; links are followed inside the image.

mod elf;
#[cfg(test)]
mod tests;

use neonvm_disk::tree::{Inode, InodeId, Kind, Sources, Tree};
use neonvm_types::guest::{Command, Process, Service};

use crate::accounts::Accounts;
use crate::content;

/// Where a name without a slash is looked for, if the image has no `PATH`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Bytes of a file in which the kernel looks for an interpreter.
const FIRST_LINE: usize = 256;
/// Scripts that interpret each other, as Linux has it.
const MOST_INTERPRETERS: usize = 5;

pub(super) struct Image<'a> {
    pub(super) tree: &'a Tree,
    pub(super) sources: &'a dyn Sources,
    /// `amd64`, `arm64`.
    pub(super) architecture: &'a str,
}

/// What will keep the workload and the services from running, each as a sentence for the user. Services make up for a missing workload.
pub(super) fn warnings(image: &Image<'_>, process: &Process, services: &[Service]) -> Vec<String> {
    let accounts = Accounts::of(image.tree, image.sources);
    let mut found = Vec::new();
    let without = |problem: String, what: &str| format!("{problem}, so {what} will not start");
    let words: Vec<&String> = process.entrypoint.iter().chain(&process.cmd).collect();
    let runner = Runner::new(image, &accounts, &process.user, &process.working_dir, &process.env);
    match (&runner, words.first().filter(|program| !program.is_empty())) {
        (_, None) if services.is_empty() => {
            let text = "no program: neither the image nor this command names one, so the VM has no workload; append -- PROGRAM [ARGUMENT…]";
            found.push(text.to_owned());
        }
        (_, None) => {}
        (Err(problem), _) => found.push(without(problem.clone(), "the workload")),
        (Ok(runner), Some(program)) => {
            let problem = runner.directory_problem().or_else(|| runner.problem(program));
            found.extend(problem.map(|problem| without(problem, "the workload")));
        }
    }
    for service in services {
        let name = format!("command {:?}", service.name);
        match (Runner::new(image, &accounts, &service.user, "/", &[]), &service.command) {
            (Err(problem), _) => found.push(without(problem, &name)),
            // Without a shell in the image the guest program's own interprets it.
            (Ok(_), Command::Shell(_)) => {}
            (Ok(runner), Command::Exec(words)) => {
                let problem = words.first().and_then(|program| runner.problem(program));
                found.extend(problem.map(|problem| without(problem, &name)));
            }
        }
    }
    found
}

/// A user with a working directory in an image.
struct Runner<'a> {
    image: &'a Image<'a>,
    user: &'a str,
    uid: u32,
    groups: Vec<u32>,
    directory: &'a str,
    path: &'a str,
}

/// What stands in the way of a file, without the name of the file.
type Problem = String;

impl<'a> Runner<'a> {
    fn new(
        image: &'a Image<'a>,
        accounts: &Accounts,
        user: &'a str,
        directory: &'a str,
        environment: &'a [String],
    ) -> Result<Self, String> {
        let (uid, groups) = accounts.resolve(user).map_err(|problem| format!("{problem} of the image"))?;
        let path = environment.iter().rev().find_map(|pair| pair.strip_prefix("PATH=")).unwrap_or(PATH);
        Ok(Self { image, user, uid, groups, directory, path })
    }

    /// Why the working directory cannot be entered. One that is missing is made, as container engines do.
    fn directory_problem(&self) -> Option<String> {
        let named = |problem: &str| Some(format!("the working directory {:?} {problem}", self.directory));
        let mut prefix = String::new();
        for part in self.directory.split('/').filter(|part| !part.is_empty()) {
            let above = prefix.clone();
            prefix = format!("{prefix}/{part}");
            match self.find(&prefix) {
                Some(inode) if self.is_directory(inode) => {}
                Some(_) if prefix.trim_matches('/') == self.directory.trim_matches('/') => {
                    return named("is a file");
                }
                Some(_) => return named(&format!("leads through {prefix:?}, which is a file")),
                None => {
                    let entry =
                        self.find(&above).and_then(|above| self.image.tree.child(above, part.as_bytes()));
                    return entry
                        .and_then(|_| named(&format!("leads through {prefix:?}, a link to nothing")));
                }
            }
        }
        if self.cannot_search(self.directory).is_some() {
            return named(&format!("may not be entered by {}", self.shown_user()));
        }
        None
    }

    /// Why a program does not start.
    fn problem(&self, program: &str) -> Option<String> {
        let named = |problem: Problem| format!("the program {program:?} {problem}");
        if program.contains('/') {
            return self.file_problem(&self.absolute(program), 0).map(named);
        }
        // As `execvp`: the first that may be run.
        let mut first = None;
        for directory in self.path.split(':') {
            let path = format!("{}/{program}", self.absolute(directory));
            if self.find(&path).is_none_or(|inode| self.is_directory(inode)) {
                continue;
            }
            match self.file_problem(&path, 0) {
                None => return None,
                Some(problem) => first = first.or(Some(problem)),
            }
        }
        Some(named(
            first.unwrap_or_else(|| format!("is in no directory of PATH ({}) of the image", self.path)),
        ))
    }

    /// Why a file cannot be run; `depth` interpreters led to it.
    fn file_problem(&self, path: &str, depth: usize) -> Option<Problem> {
        let Some(inode) = self.find(path) else {
            return Some(match self.dangling(path) {
                Some(link) => format!("is a link to nothing in the image ({link})"),
                None => "is not in the image".to_owned(),
            });
        };
        let node = self.image.tree.get(inode)?;
        match &node.kind {
            Kind::Directory(_) => return Some("is a directory".to_owned()),
            Kind::File(content) if content.length == 0 => return Some("is empty".to_owned()),
            Kind::File(_) => {}
            _ => return Some("is no regular file".to_owned()),
        }
        if let Some(directory) = self.cannot_search(path) {
            return Some(format!("is below {directory:?}, which {} may not enter", self.shown_user()));
        }
        if !self.may_run(node) {
            let mode = node.metadata.mode;
            return Some(format!(
                "is not executable by {} (mode {mode:04o}; chmod +x it before it is packed)",
                self.shown_user()
            ));
        }
        let head = content::part(self.image.tree, self.image.sources, inode, 0, FIRST_LINE)?;
        if let Some(line) = head.strip_prefix(b"#!") {
            return self.script_problem(line, depth);
        }
        if head.starts_with(b"\x7fELF") {
            return elf::problem(self.image, inode, |loader| {
                self.file_problem(loader, MOST_INTERPRETERS).is_none()
            });
        }
        let of = match head.as_slice() {
            [b'M', b'Z', ..] => "is for Windows",
            [0xcf | 0xce, 0xfa, 0xed, 0xfe, ..] | [0xca, 0xfe, 0xba, 0xbe, ..] => "is for macOS",
            _ => "is neither a program for Linux nor a script that begins with #!",
        };
        Some(of.to_owned())
    }

    /// What is wrong with the interpreter of a script; `line` is what follows `#!`.
    fn script_problem(&self, line: &[u8], depth: usize) -> Option<Problem> {
        let line = line.split(|byte| matches!(byte, b'\n' | 0)).next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        if line.contains('\r') {
            return Some(
                "has the line ends of Windows (CR LF) in its first line: convert it, dos2unix".to_owned(),
            );
        }
        let line = line.trim_matches([' ', '\t']);
        let (interpreter, argument) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        if interpreter.is_empty() {
            return Some("names no interpreter after #!".to_owned());
        }
        if depth >= MOST_INTERPRETERS {
            return Some("is a script whose interpreters are scripts".to_owned());
        }
        let found = self.file_problem(&self.absolute(interpreter), depth + 1);
        if let Some(problem) = found {
            return Some(format!("needs the interpreter {interpreter:?}, which {problem}"));
        }
        if !interpreter.ends_with("/env") {
            return None;
        }
        // `env` looks a name up; its own options and assignments are left alone, but for -S, which begins the command.
        let mut words = argument.split([' ', '\t']).filter(|word| !word.is_empty() && *word != "-S");
        let name = words.next().map(|word| word.strip_prefix("-S").unwrap_or(word))?;
        if name.starts_with('-') || name.contains('=') || name.is_empty() {
            return None;
        }
        let problem = self.problem(name)?;
        Some(format!("needs the interpreter {name:?}: {problem}"))
    }

    /// A path from the root of the image.
    fn absolute(&self, path: &str) -> String {
        if path.starts_with('/') { path.to_owned() } else { format!("/{}/{path}", self.directory) }
    }

    fn find(&self, path: &str) -> Option<InodeId> {
        content::find(self.image.tree, path.as_bytes())
    }

    fn is_directory(&self, inode: InodeId) -> bool {
        self.image.tree.names(inode).is_some()
    }

    /// The target of a link that leads nowhere.
    fn dangling(&self, path: &str) -> Option<String> {
        let (above, name) = path.rsplit_once('/')?;
        let link = self.image.tree.child(self.find(above)?, name.as_bytes())?;
        match &self.image.tree.get(link)?.kind {
            Kind::Symlink(target) => Some(target.escape_ascii().to_string()),
            _ => None,
        }
    }

    /// The first directory on a path that the user may not search.
    fn cannot_search(&self, path: &str) -> Option<String> {
        if self.uid == 0 {
            return None;
        }
        let mut prefix = String::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            prefix = format!("{prefix}/{part}");
            let node = self.find(&prefix).and_then(|inode| self.image.tree.get(inode))?;
            if matches!(node.kind, Kind::Directory(_)) && !self.may_run(node) {
                return Some(prefix);
            }
        }
        None
    }

    /// Whether the user may run a file or search a directory. Access control lists are taken to allow it.
    fn may_run(&self, inode: &Inode) -> bool {
        let metadata = &inode.metadata;
        let is_listed = metadata.xattrs.contains_key(&b"system.posix_acl_access"[..]);
        let bits = if self.uid == 0 || is_listed {
            0o111
        } else if metadata.uid == self.uid {
            0o100
        } else if self.groups.contains(&metadata.gid) {
            0o010
        } else {
            0o001
        };
        metadata.mode & bits != 0
    }

    fn shown_user(&self) -> String {
        if self.uid == 0 { "root".to_owned() } else { format!("user {:?}", self.user) }
    }
}
