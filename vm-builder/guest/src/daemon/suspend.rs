//! Consent to be suspended, and the clock afterwards. A guest denies while it has work: something runs, or PostgreSQL has a query or a
//! transaction open. Sessions that are idle do not keep it awake: their connections stay.

use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_settime};

/// Looks at the run queue, and the pause between them: what runs for a moment is no work.
const LOOKS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(15);
/// The thread that looks.
const OWN: u32 = 1;
/// How PostgreSQL begins the title of its processes (`init_ps_display`).
const POSTGRES: &str = "postgres: ";

/// Why the guest is not to be suspended now; `None`: it may be. Blocks.
pub(super) fn obstacle(root: &Path) -> Option<String> {
    if let Some(session) = busy_session(root) {
        return Some(format!("PostgreSQL is not idle: {session}"));
    }
    let mut least = u32::MAX;
    for look in 0..LOOKS {
        if look > 0 {
            std::thread::sleep(PAUSE);
        }
        let text = std::fs::read_to_string(root.join("proc/loadavg")).unwrap_or_default();
        least = least.min(runnable(&text).saturating_sub(OWN));
        if least == 0 {
            return None;
        }
    }
    Some(format!("{least} of its tasks run"))
}

/// The fourth word of `/proc/loadavg` is `runnable/all`.
fn runnable(text: &str) -> u32 {
    let word = text.split_ascii_whitespace().nth(3).and_then(|word| word.split_once('/'));
    word.and_then(|(runnable, _)| runnable.parse().ok()).unwrap_or_default()
}

/// A session of PostgreSQL that has a query or a transaction open, by its title.
fn busy_session(root: &Path) -> Option<String> {
    let entries = std::fs::read_dir(root.join("proc")).ok()?;
    let processes = entries.filter_map(Result::ok).filter(|entry| {
        entry.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    });
    processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok()).find_map(|title| {
        let title = String::from_utf8_lossy(&title);
        let title = title.trim_matches(['\0', ' ']);
        is_busy(title).then(|| title.chars().take(120).collect())
    })
}

/// Whether a title is that of a session which does something: `postgres: [CLUSTER: ]USER DATABASE HOST ACTIVITY`, where the host is
/// `[local]` or has a port in parentheses. Processes of the server itself have no host.
fn is_busy(title: &str) -> bool {
    let Some(rest) = title.strip_prefix(POSTGRES) else { return false };
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    let is_host = |word: &&str| *word == "[local]" || word.ends_with(')') && word.contains('(');
    let Some(host) = words.iter().position(is_host) else { return false };
    host >= 2 && !matches!(words.get(host + 1..), Some([] | ["idle"]))
}

/// Sets the clock to so many nanoseconds since 1970.
pub(super) fn set_clock(body: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(body).unwrap_or_default();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let nanos = text.parse::<i64>().ok().filter(|_| digits);
    let nanos = nanos.ok_or("expected nanoseconds since 1970 in decimal digits and nothing else")?;
    let time = Timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
    clock_settime(ClockId::Realtime, time).map_err(|error| format!("the clock cannot be set: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_do_something_are_busy() {
        for (title, busy) in [
            ("postgres: app db 10.0.0.9(41234) idle", false),
            ("postgres: app db [local] idle", false),
            ("postgres: app db [local]", false),
            ("postgres: app db 10.0.0.9(41234) SELECT", true),
            ("postgres: main: app db 10.0.0.9(41234) idle in transaction", true),
            ("postgres: main: app db 10.0.0.9(41234) idle", false),
            ("postgres: app db fe80::1(41234) idle in transaction (aborted)", true),
            ("postgres: app db [local] startup", true),
            ("postgres: autovacuum launcher", false),
            ("postgres: checkpointer ", false),
            ("postgres: walwriter", false),
            ("postgres -D /var/lib/postgresql/data", false),
            ("bash", false),
            ("", false),
        ] {
            assert_eq!(is_busy(title), busy, "{title:?}");
        }
    }

    #[test]
    fn a_guest_with_a_query_denies_and_an_idle_one_agrees() {
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("proc/17");
        std::fs::create_dir_all(&process).unwrap();
        std::fs::write(root.path().join("proc/loadavg"), "0.00 0.00 0.00 1/90 41\n").unwrap();
        assert_eq!(obstacle(root.path()), None);
        std::fs::write(process.join("cmdline"), "postgres: app db [local] UPDATE\0\0").unwrap();
        let why = obstacle(root.path()).unwrap();
        assert_eq!(why, "PostgreSQL is not idle: postgres: app db [local] UPDATE");
        std::fs::write(process.join("cmdline"), "postgres: app db [local] idle\0").unwrap();
        std::fs::write(root.path().join("proc/loadavg"), "0.00 0.00 0.00 3/90 41\n").unwrap();
        assert_eq!(obstacle(root.path()).as_deref(), Some("2 of its tasks run"));
    }

    #[test]
    fn a_clock_is_set_by_digits_only() {
        for body in [&b""[..], b"x", b"-5", b"99999999999999999999", b"1 ", b"\xff"] {
            assert!(set_clock(body).unwrap_err().starts_with("expected"), "{body:?}");
        }
    }
}
