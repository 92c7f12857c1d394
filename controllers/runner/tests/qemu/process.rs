//! Processes, as the kernel shows them.

use rustix::process::{Pid, Signal, kill_process};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    /// Name, state and parent (Linux, proc_pid_stat(5)).
    fn stat(self) -> Option<(String, char, u32)> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).ok()?;
        // The name may have spaces and brackets in it.
        let (head, rest) = text.rsplit_once(") ")?;
        let name = head.split_once('(')?.1.to_owned();
        let mut fields = rest.split(' ');
        Some((name, fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
    }

    pub(crate) fn name(self) -> String {
        self.stat().map(|(name, ..)| name).unwrap_or_default()
    }

    pub(crate) fn children(self) -> Vec<Self> {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers
            .map(Self)
            .filter(|other| other.stat().is_some_and(|(_, _, parent)| parent == self.0))
            .collect()
    }

    /// Whether it runs nothing any more. Its parent may be slow to reap it.
    pub(crate) fn is_over(self) -> bool {
        self.stat().is_none_or(|(_, state, _)| state == 'Z')
    }

    /// The kernel's status of each of its threads (proc_pid_status(5)), by number.
    pub(crate) fn threads(self) -> Vec<(u32, String)> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0)).unwrap().flatten();
        let status = |thread: std::fs::DirEntry| {
            let text = std::fs::read_to_string(thread.path().join("status")).ok()?;
            Some((thread.file_name().to_str()?.parse().ok()?, text))
        };
        threads.filter_map(status).collect()
    }

    pub(crate) fn kill(self) {
        let pid = Pid::from_raw(i32::try_from(self.0).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }

    pub(crate) fn sockets(self) -> usize {
        self.open_sockets().len()
    }

    /// Those that do not leave the computer.
    pub(crate) fn unix_sockets(self) -> usize {
        let table = std::fs::read_to_string(format!("/proc/{}/net/unix", self.0)).unwrap_or_default();
        let known: Vec<&str> = table.lines().filter_map(|line| line.split_whitespace().nth(6)).collect();
        self.open_sockets().iter().filter(|number| known.contains(&number.as_str())).count()
    }

    /// The kernel's description of its open sockets; for people.
    pub(crate) fn describe_sockets(self) -> String {
        let own = self.open_sockets();
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0)).into_iter().flatten().flatten();
        let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm")).ok();
        let threads: Vec<String> = threads.filter_map(name).map(|name| name.trim_end().to_owned()).collect();
        let mut text = format!("sockets {}, threads {}\n", own.join(" "), threads.join(" "));
        for table in ["tcp", "tcp6", "udp", "unix"] {
            let lines = std::fs::read_to_string(format!("/proc/{}/net/{table}", self.0)).unwrap_or_default();
            let is_own =
                |line: &&str| line.split_whitespace().any(|word| own.iter().any(|number| number == word));
            lines.lines().filter(is_own).for_each(|line| text.push_str(&format!("{table} {line}\n")));
        }
        text
    }

    /// Inodes.
    fn open_sockets(self) -> Vec<String> {
        let Ok(open) = std::fs::read_dir(format!("/proc/{}/fd", self.0)) else { return Vec::new() };
        let targets = open.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let inode = |target: std::path::PathBuf| {
            let text = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(text.to_owned())
        };
        targets.filter_map(inode).collect()
    }
}
