//! Archives that mean harm. Each is refused with an error that names the entry, or has no effect outside the tree.

use super::*;
use crate::layer::writer::{Writer, binary, header};

fn new() -> Writer {
    Writer::default()
}

fn refused(writer: Writer, part: &str) {
    let error = applied(&[writer.end()]).expect_err(part).to_string();
    assert!(error.contains(part), "{error:?} does not contain {part:?}");
    assert_eq!(error.lines().count(), 1);
}

#[test]
fn names_that_lead_out_of_the_root_are_refused_by_name() {
    refused(new().file("../etc/passwd", b"x"), r#"entry "../etc/passwd": path leads out of the root"#);
    refused(new().file("a/../../b", b""), "path leads out");
    refused(new().directory("..", 0o755), "path leads out");
    refused(new().symlink("a/../..", "x"), "path leads out");
    refused(new().hard_link("a", "../../etc/shadow"), "path leads out");
    refused(new().file(".wh...", b""), "whiteout without a name");
    refused(new().file("a/.wh..", b""), "whiteout without a name");
    refused(new().file(".", b"x"), "the root must be a directory");
}

#[test]
fn symbolic_links_cannot_be_used_to_leave() {
    let layer = new()
        .symlink("up", "../../../..")
        .symlink("etc", "/real")
        .file("up/x", b"1")
        .file("etc/y", b"2")
        .end();
    let tree = applied(std::slice::from_ref(&layer)).unwrap();
    let expected = ["/etc -> /real", "/real dir 755", "/real/y file 2", "/up -> ../../../..", "/x file 1"];
    assert_eq!(listed(&tree, &[layer]), expected);
}

#[test]
fn loops_and_broken_paths_are_errors() {
    refused(new().symlink("a", "b").symlink("b", "a").file("a/x", b""), "too many symbolic links");
    refused(new().symlink("a", "a").file("a/x", b""), "too many symbolic links");
    refused(new().file("a", b"").file("a/b", b""), "is not a directory");
    refused(new().symlink("a", ""), "symbolic link to nothing");
    refused(new().pax(&[("path", b"a\0b")]).file("x", b""), "name with a NUL");
}

#[test]
fn hard_links_to_nothing_name_both() {
    refused(new().hard_link("a", "b"), r#"entry "a": hard link to "b", which does not exist"#);
    refused(new().directory("d", 0o755).hard_link("a", "d"), "hard link to the directory");
    refused(new().hard_link("a", "/"), "hard link to the root");
    let lower = new().file("b", b"").end();
    assert!(applied(&[lower, new().file(".wh.b", b"").hard_link("a", "b").end()]).is_err());
}

#[test]
fn dangling_and_absolute_links_are_kept_as_they_are() {
    let layer = new().symlink("a", "/nowhere/../..").symlink("b", "../../outside").end();
    let tree = applied(std::slice::from_ref(&layer)).unwrap();
    assert_eq!(listed(&tree, &[layer]), ["/a -> /nowhere/../..", "/b -> ../../outside"]);
}

#[test]
fn limits_hold() {
    let limits = Limits { entries: 3, bytes: 10, metadata: 1000, path: 64, ..Limits::default() };
    let many = (0..4).fold(new(), |writer, number| writer.file(&number.to_string(), b"")).end();
    let error = limited(std::slice::from_ref(&many), limits).unwrap_err().to_string();
    assert_eq!(error, "layer 0: number of entries exceeds the limit of 3 entries");
    let half = (0..2).fold(new(), |writer, number| writer.file(&number.to_string(), b"")).end();
    assert!(limited(&[half.clone(), half], limits).is_err(), "counted over all layers");
    assert!(limited(&[new().file("a", b"0123456789a").end()], limits).is_err());
    assert!(
        limited(&[new().pax(&[("SCHILY.xattr.user.a", &[b'x'; 2000])]).file("a", b"").end()], limits)
            .is_err()
    );
    let deep = format!("{}x", "d/".repeat(40));
    assert!(limited(&[new().file(&deep, b"").end()], limits).is_err());
    refused(
        new().file(&"n".repeat(100), b"").pax(&[("path", &[b'n'; 256])]).file("x", b""),
        "longer than 255",
    );
    refused(new().pax(&[("path", &b"d/".repeat(2049))]).file("x", b""), "longer than 4096");
}

#[test]
fn sizes_that_cannot_be_are_errors() {
    let sized = |field: Vec<u8>| {
        new().raw(header(b"a", b'0', 0, |block| block[124..136].copy_from_slice(&field)), b"")
    };
    refused(sized(binary(i128::from(i64::MAX), 12)), "ends early");
    refused(sized(binary(1 << 80, 12)), "size is out of range");
    refused(sized(binary(-1, 12)), "size is out of range");
    refused(sized(b"77777777777\0".to_vec()), "ends early");
    refused(sized(b"12x4567890\0\0".to_vec()), "not octal");
    refused(new().pax(&[("size", b"9223372036854775807")]).file("a", b""), "ends early");
    refused(new().pax(&[("size", b"99999999999999999999")]).file("a", b""), "out of range");
    refused(new().pax(&[("uid", b"4294967296")]).file("a", b""), "owner");
    refused(new().raw(header(b"x", b'x', 2 << 20, |_| {}), b""), "limit");
    refused(new().raw(header(b"x", b'x', 4, |_| {}), b"99 a"), "wrong length");
    refused(new().raw(header(b"a", b'Z', 0, |_| {}), b""), "unsupported type");
    refused(
        new().pax(&[("GNU.sparse.size", b"10"), ("GNU.sparse.map", b"0,5,3,5")]).file("a", &[0; 10]),
        "overlaps",
    );
    refused(
        new().pax(&[("GNU.sparse.size", b"10"), ("GNU.sparse.map", b"0,10")]).file("a", &[0; 5]),
        "exceeds",
    );
    refused(
        new().pax(&[("GNU.sparse.size", b"99999999999999999"), ("GNU.sparse.map", b"0,1")]).file("a", b"x"),
        "16 TiB",
    );
    let mut bytes = new().file("a", b"abc").end();
    bytes[0] = b'b';
    assert!(applied(&[bytes]).unwrap_err().to_string().contains("no tar header at byte 0"));
}

#[test]
fn many_whiteouts_of_one_directory_are_cheap() {
    let mut lower = new().directory("d", 0o755);
    for number in 0..2000 {
        lower = lower.file(&format!("d/{number}"), b"");
    }
    let mut upper = new().directory("d", 0o755);
    for number in 0..2000 {
        upper = upper.file(&format!("d/new{number}"), b"").file("d/.wh..wh..opq", b"");
    }
    let tree = applied(&[lower.end(), upper.end()]).unwrap();
    assert_eq!(tree.names(find(&tree, "d").unwrap()).unwrap().len(), 2000);
}
