//! What layers do to one another.

use super::*;
use crate::layer::writer::Writer;

fn check(layers: &[Vec<u8>], expected: &[&str]) {
    assert_eq!(listed(&applied(layers).unwrap(), layers), expected);
}

fn new() -> Writer {
    Writer::default()
}

#[test]
fn whiteouts_hide_lower_layers_wherever_they_stand() {
    let lower = new().file("a", b"1").directory("d", 0o700).file("d/x", b"x").file("d/y", b"y").end();
    let before = new().file(".wh.a", b"").file("a", b"2").file("d/.wh.x", b"").end();
    let after = new().file("a", b"2").file(".wh.a", b"").file("d/.wh.x", b"").end();
    for upper in [before, after] {
        check(&[lower.clone(), upper], &["/a file 2", "/d dir 700", "/d/y file y"]);
    }
    check(&[lower.clone(), new().file(".wh.d", b"").end()], &["/a file 1"]);
    check(
        &[lower.clone(), new().file("nothing/.wh.d", b"").file(".wh.b", b"").end()],
        &["/a file 1", "/d dir 700", "/d/x file x", "/d/y file y"],
    );
}

#[test]
fn opaque_directories_hide_only_lower_layers_in_any_order() {
    let lower = new()
        .directory("d", 0o700)
        .file("d/old", b"o")
        .directory("d/sub", 0o700)
        .file("d/sub/old", b"o")
        .file("l", b"linked")
        .end();
    let expected = [
        "/d dir 711",
        "/d/hard file linked",
        "/d/new file n",
        "/d/sub dir 755",
        "/d/sub/new file n",
        "/l file linked",
    ];
    let first = new()
        .directory("d", 0o711)
        .file("d/.wh..wh..opq", b"")
        .file("d/new", b"n")
        .file("d/sub/new", b"n")
        .hard_link("d/hard", "l")
        .end();
    let last = new()
        .file("d/sub/new", b"n")
        .hard_link("d/hard", "l")
        .file("d/new", b"n")
        .directory("d", 0o711)
        .file("d/.wh..wh..opq", b"")
        .file("d/.wh..wh..opq", b"")
        .end();
    for upper in [first, last] {
        check(&[lower.clone(), upper], &expected);
    }
}

#[test]
fn kinds_change_and_directories_keep_their_children() {
    let lower = new().directory("a", 0o700).file("a/x", b"x").file("b", b"b").symlink("c", "a").end();
    let upper =
        new().directory("a", 0o1777).directory("b", 0o755).file("b/y", b"y").directory("c", 0o755).end();
    check(
        &[lower.clone(), upper],
        &["/a dir 1777", "/a/x file x", "/b dir 755", "/b/y file y", "/c dir 755"],
    );
    let upper = new().file("a", b"now a file").end();
    check(&[lower, upper], &["/a file now a file", "/b file b", "/c -> a"]);
}

#[test]
fn entries_go_through_symbolic_links_of_lower_layers() {
    let lower = new()
        .directory("usr/lib", 0o755)
        .symlink("lib", "usr/lib")
        .symlink("abs", "/usr/./../usr/lib/")
        .symlink("out", "../../../../usr")
        .symlink("run", "/var/run")
        .file("usr/lib/gone", b"")
        .end();
    let upper = new()
        .file("lib/x", b"x")
        .file("abs/y", b"y")
        .file("out/z", b"z")
        .file("run/pid", b"1")
        .file("lib/.wh.gone", b"")
        .end();
    check(
        &[lower, upper],
        &[
            "/abs -> /usr/./../usr/lib/",
            "/lib -> usr/lib",
            "/out -> ../../../../usr",
            "/run -> /var/run",
            "/usr dir 755",
            "/usr/lib dir 755",
            "/usr/lib/x file x",
            "/usr/lib/y file y",
            "/usr/z file z",
            "/var dir 755",
            "/var/run dir 755",
            "/var/run/pid file 1",
        ],
    );
}

#[test]
fn hard_links_share_an_inode_also_with_lower_layers() {
    let lower = new().file("a", b"1").symlink("dir", "d").directory("d", 0o755).end();
    let upper = new().hard_link("dir/b", "./a").hard_link("c", "/d/b").hard_link("c", "a").end();
    let tree = applied(&[lower, upper]).unwrap();
    let ids = ["a", "d/b", "c"].map(|path| find(&tree, path).unwrap());
    assert!(ids.iter().all(|id| *id == ids[0]));
}

#[test]
fn the_last_of_duplicates_wins_and_paths_are_normalised() {
    let layer =
        new().file("./a//b/../c", b"1").file("/a/c", b"2").directory("./", 0o711).file("a/./c", b"3").end();
    let tree = applied(std::slice::from_ref(&layer)).unwrap();
    assert_eq!(listed(&tree, &[layer]), ["/a dir 755", "/a/c file 3"]);
    assert_eq!(tree.get(tree.root()).unwrap().metadata.mode, 0o711);
}

#[test]
fn literal_archives_have_no_whiteouts() {
    let layer = new().file(".wh.a", b"1").file(".wh..wh..opq", b"2").end();
    let mut applier = Applier::new(Limits::default());
    let mut archive = Archive::new("x", Cursor::new(&layer)).unwrap();
    applier.apply(&mut archive, SourceId(0), Whiteouts::Literal).unwrap();
    assert_eq!(listed(&applier.into_tree(), &[layer]), ["/.wh..wh..opq file 2", "/.wh.a file 1"]);
}
