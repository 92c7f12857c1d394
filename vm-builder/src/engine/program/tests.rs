use neonvm_disk::tree::{Content, Metadata, NoSources, Origin, Piece, Time};
use neonvm_types::guest::Start;
use proptest::prelude::*;

use super::*;
use crate::inject;

fn elf(machine: u16, loader: &str) -> Vec<u8> {
    let mut bytes = vec![0; 64 + 56];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
    bytes[54..56].copy_from_slice(&56u16.to_le_bytes());
    bytes[56..58].copy_from_slice(&u16::from(!loader.is_empty()).to_le_bytes());
    bytes[64..68].copy_from_slice(&3u32.to_le_bytes());
    bytes[72..80].copy_from_slice(&120u64.to_le_bytes());
    bytes[96..104].copy_from_slice(&(loader.len() as u64 + 1).to_le_bytes());
    bytes.extend(loader.as_bytes());
    bytes.push(0);
    bytes
}

fn put(tree: &mut Tree, path: &str, mode: u16, bytes: &[u8]) {
    inject::put(tree, path, mode, Time::default(), &bytes.into()).unwrap();
}

fn link(tree: &mut Tree, directory: &str, name: &str, target: &str) {
    let kind = Kind::Symlink(target.as_bytes().to_vec());
    let link = tree.add(Inode { metadata: Metadata::default(), kind }).unwrap();
    let directory = content::find(tree, directory.as_bytes()).unwrap();
    tree.link(directory, name.as_bytes(), link);
}

/// A tree with programs that start, and such that do not.
fn tree() -> Tree {
    let mut tree = Tree::new();
    put(&mut tree, "/etc/passwd", 0o644, b"root:x:0:0::/root:/bin/sh\npg:x:999:998::/:/bin/sh\n");
    put(&mut tree, "/etc/group", 0o644, b"root:x:0:\nstaff:x:50:pg\n");
    put(&mut tree, "/usr/bin/sh", 0o755, &elf(62, ""));
    put(&mut tree, "/usr/bin/env", 0o755, &elf(62, "/lib64/ld.so"));
    put(&mut tree, "/usr/lib/ld.so", 0o755, &elf(62, ""));
    put(&mut tree, "/usr/bin/musl", 0o755, &elf(62, "/lib/ld-musl-x86_64.so.1"));
    put(&mut tree, "/usr/bin/glibc", 0o755, &elf(62, "/lib64/none.so"));
    put(&mut tree, "/usr/bin/arm", 0o755, &elf(183, ""));
    link(&mut tree, "/", "bin", "usr/bin");
    link(&mut tree, "/", "lib64", "/../usr/lib");
    link(&mut tree, "/usr/bin", "loop", "loop");
    link(&mut tree, "/usr/bin", "gone", "/nowhere");
    link(&mut tree, "/usr/bin", "python", "../../bin/sh");
    for (name, mode, text) in [
        ("good.sh", 0o755, "#!/bin/sh\nexec true\n"),
        ("spaces.sh", 0o755, "#! \t/bin/sh -e\n"),
        ("short.sh", 0o755, "#!/bin/sh"),
        ("env.sh", 0o755, "#!/usr/bin/env python\n"),
        ("split.sh", 0o755, "#!/usr/bin/env -S python -u\n"),
        ("chain.sh", 0o755, "#!/app/good.sh\n"),
        ("plain.sh", 0o644, "#!/bin/sh\n"),
        ("mine.sh", 0o700, "#!/bin/sh\n"),
        ("crlf.sh", 0o755, "#!/bin/sh\r\necho\r\n"),
        ("crlf-env.sh", 0o755, "#!/usr/bin/env python\r\n"),
        ("bash.sh", 0o755, "#!/bin/bash\n"),
        ("no-env.sh", 0o755, "#!/usr/bin/env ruby\n"),
        ("nothing.sh", 0o755, "#!\n"),
        ("self.sh", 0o755, "#!/app/self.sh\n"),
        ("text.sh", 0o755, "echo no first line\n"),
        ("empty", 0o755, ""),
        ("windows.exe", 0o755, "MZ\u{0}"),
    ] {
        put(&mut tree, &format!("/app/{name}"), mode, text.as_bytes());
    }
    put(&mut tree, "/secret/run", 0o755, b"#!/bin/sh\n");
    let secret = content::find(&tree, b"/secret").unwrap();
    tree.get_mut(secret).unwrap().metadata.mode = 0o700;
    tree
}

fn process(program: &str, user: &str, directory: &str, env: &[&str]) -> Process {
    Process {
        entrypoint: vec![program.to_owned()],
        user: user.to_owned(),
        working_dir: directory.to_owned(),
        env: env.iter().map(|pair| (*pair).to_owned()).collect(),
        ..Process::default()
    }
}

fn found(process: &Process) -> Vec<String> {
    let tree = tree();
    warnings(&Image { tree: &tree, sources: &NoSources, architecture: "amd64" }, process, &[])
}

#[test]
fn what_starts_has_no_warning() {
    for process in [
        process("/bin/sh", "", "", &[]),
        process("sh", "pg", "/", &[]),
        process("python", "", "", &[]),
        process("good.sh", "", "", &["PATH=/sbin:/app"]),
        process("good.sh", "", "/app", &["PATH=:/sbin"]),
        process("./good.sh", "", "/app", &[]),
        process("app/good.sh", "", "/", &[]),
        process("../app/good.sh", "", "/etc", &[]),
        process("./good.sh", "", "app/", &[]),
        process("/usr/bin/env", "999:50", "/made/when/it/is/missing", &[]),
        process("/app/spaces.sh", "", "", &[]),
        process("/app/short.sh", "5000", "", &[]),
        process("/app/env.sh", "pg:staff", "", &[]),
        process("/app/split.sh", "", "", &[]),
        process("/app/chain.sh", "", "", &[]),
        process("/app/mine.sh", "", "", &[]),
        process("/secret/run", "", "/secret", &[]),
    ] {
        assert_eq!(found(&process), Vec::<String>::new(), "{process:?}");
    }
}

#[test]
fn what_does_not_start_is_named_with_its_reason() {
    for (process, expected) in [
        (process("/bin/nosuch", "", "", &[]), "the program \"/bin/nosuch\" is not in the image"),
        (process("nosuch", "", "", &[]), "\"nosuch\" is in no directory of PATH (/usr/local/sbin:"),
        (process("sh", "", "", &["PATH=/app"]), "is in no directory of PATH (/app)"),
        (process("good.sh", "", "/app", &[]), "is in no directory of PATH"),
        (process("./run", "", "/app", &[]), "is not in the image"),
        (process("/app", "", "", &[]), "is a directory"),
        (process("/app/good.sh/x", "", "", &[]), "is not in the image"),
        (process("/bin/loop", "", "", &[]), "is a link to nothing in the image (loop)"),
        (process("/bin/gone", "", "", &[]), "is a link to nothing in the image (/nowhere)"),
        (process("/app/plain.sh", "", "", &[]), "is not executable by root (mode 0644; chmod +x"),
        (process("plain.sh", "", "", &["PATH=/app"]), "is not executable by root"),
        (process("/app/mine.sh", "pg", "", &[]), "is not executable by user \"pg\" (mode 0700"),
        (process("/app/crlf.sh", "", "", &[]), "line ends of Windows"),
        (process("/app/crlf-env.sh", "", "", &[]), "line ends of Windows"),
        (
            process("/app/bash.sh", "", "", &[]),
            "needs the interpreter \"/bin/bash\", which is not in the image",
        ),
        (process("/app/no-env.sh", "", "", &[]), "needs the interpreter \"ruby\": "),
        (process("/app/nothing.sh", "", "", &[]), "names no interpreter"),
        (process("/app/self.sh", "", "", &[]), "interpreters are scripts"),
        (process("/app/text.sh", "", "", &[]), "neither a program for Linux nor a script"),
        (process("/app/empty", "", "", &[]), "is empty"),
        (process("/app/windows.exe", "", "", &[]), "is for Windows"),
        (process("/bin/arm", "", "", &[]), "is a program for arm64, not for amd64"),
        (process("/bin/musl", "", "", &[]), "needs the loader \"/lib/ld-musl-x86_64.so.1\""),
        (
            process("/bin/glibc", "", "", &[]),
            "needs the loader \"/lib64/none.so\", which is not in the image",
        ),
        (process("/bin/sh", "nobody", "", &[]), "user \"nobody\" is not in /etc/passwd of the image"),
        (process("/bin/sh", "pg:wheel", "", &[]), "group \"wheel\" is not in /etc/group of the image"),
        (process("/bin/sh", "", "/etc/passwd", &[]), "the working directory \"/etc/passwd\" is a file"),
        (process("/bin/sh", "", "/etc/passwd/x", &[]), "leads through \"/etc/passwd\", which is a file"),
        (process("/bin/sh", "", "/bin/gone", &[]), "leads through \"/bin/gone\", a link to nothing"),
        (process("/bin/sh", "pg", "/secret", &[]), "may not be entered by user \"pg\""),
        (process("/secret/run", "pg", "/", &[]), "is below \"/secret\", which user \"pg\" may not enter"),
    ] {
        let all = found(&process);
        assert!(all.len() == 1 && all[0].contains(expected), "{process:?}: {all:?}");
        assert!(all[0].ends_with(", so the workload will not start"), "{}", all[0]);
    }
}

#[test]
fn a_disk_needs_a_program_or_services_and_services_are_judged_as_well() {
    let tree = tree();
    let image = Image { tree: &tree, sources: &NoSources, architecture: "amd64" };
    let service = |user: &str, command: Command| Service {
        name: "s".into(),
        user: user.into(),
        start: Start::Once,
        command,
    };
    let none = Process::default();
    assert!(warnings(&image, &none, &[])[0].contains("no program"));
    let good = service("pg", Command::Shell("anything".into()));
    assert!(warnings(&image, &none, &[good]).is_empty());
    let bad = [
        service("nobody", Command::Shell("x".into())),
        service("", Command::Exec(vec!["/app/bash.sh".into()])),
        service("", Command::Exec(vec!["sh".into()])),
    ];
    let all = warnings(&image, &process("/bin/sh", "", "", &[]), &bad);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[0].ends_with("of the image, so command \"s\" will not start"), "{all:?}");
    assert!(all[1].contains("/bin/bash"), "{all:?}");
    let arm = Image { tree: &tree, sources: &NoSources, architecture: "arm64" };
    assert!(warnings(&arm, &process("/bin/sh", "", "", &[]), &[])[0].contains("for amd64, not for arm64"));
}

proptest! {
    #[test]
    fn any_image_is_judged(
        bytes in prop_oneof![
            any::<Vec<u8>>(),
            "#!.{0,300}".prop_map(String::into_bytes),
            (any::<Vec<u8>>(), any::<[u8; 120]>()).prop_map(|(tail, mut head)| {
                head[..6].copy_from_slice(b"\x7fELF\x02\x01");
                [&head[..], &tail].concat()
            }),
        ],
        holes: bool,
        mode: u16,
        program in "[a-z./]{0,12}|/run",
        user in "[a-z0-9:]{0,6}",
        directory in "[a-z./]{0,12}",
        path in "[a-z./:]{0,12}",
    ) {
        let mut tree = tree();
        put(&mut tree, "/run", mode & 0o7777, &bytes);
        if holes {
            let inode = content::find(&tree, b"/run").unwrap();
            let piece = Piece { at: 7, length: bytes.len() as u64 + 1, origin: Origin::Memory(bytes.into()) };
            tree.get_mut(inode).unwrap().kind = Kind::File(Content { length: 4, pieces: vec![piece] });
        }
        let process = process(&program, &user, &directory, &[&format!("PATH={path}")]);
        let image = Image { tree: &tree, sources: &NoSources, architecture: "arm64" };
        prop_assert!(warnings(&image, &process, &[]).len() <= 1);
    }
}
