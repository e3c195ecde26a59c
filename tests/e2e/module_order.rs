//! Imports between the modules of a crate, and between those of a room, point one way: the orders stand in
//! docs/internals/architecture.md.
//!
//! Tests inside a module may look upward: they compare it with what is built on it.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    path::{Path, PathBuf},
};

/// The identifier that a text begins with.
fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The modules behind `root` (`crate::`) in paths, also inside the braces of a `use`.
fn named<'a>(text: &'a str, root: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(root) {
        let rest = &text[at + root.len()..];
        if text[..at].ends_with(|c: char| c.is_alphanumeric() || "_:$".contains(c)) {
            continue;
        }
        let Some(list) = rest.strip_prefix('{') else {
            found.insert(word(rest));
            continue;
        };
        let (mut depth, mut begins) = (0, true);
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                c if begins && !c.is_whitespace() => {
                    found.insert(word(&list[at..]));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    found
}

/// The Rust files below a folder that are not tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the project") {
        let path = entry.expect("readable").path();
        let is_test = path.file_stem() == Some(OsStr::new("tests"));
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension() == Some(OsStr::new("rs")) && !is_test {
            found.push(path);
        }
    }
}

/// The code of a file without comments and without its tests.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("readable");
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Imports below a folder that point to the right in its line, and how many were read in all. `room`: the path of its modules.
fn upward(src: &Path, room: &str, order: &[&str]) -> (Vec<String>, usize) {
    let rank = |module: &str| order.iter().position(|name| *name == module);
    let mut files = Vec::new();
    sources(src, &mut files);
    let (mut wrong, mut read) = (Vec::new(), 0);
    for path in files {
        let below = path.strip_prefix(src).expect("it was found there").with_extension("");
        let mut modules: Vec<&str> = below.iter().filter_map(OsStr::to_str).collect();
        modules.pop_if(|last| *last == "mod");
        let Some(own) = modules.first().and_then(|module| rank(module)) else { continue };
        let text = code(&path);
        let mut names = named(&text, room);
        names.extend(named(&text, &"super::".repeat(modules.len())));
        for name in names {
            let Some(other) = rank(name) else { continue };
            read += 1;
            if other > own {
                wrong.push(format!("{} imports {name}", path.display()));
            }
        }
    }
    (wrong, read)
}

/// The modules of a folder.
fn modules_of(folder: &Path) -> BTreeSet<String> {
    let files = std::fs::read_dir(folder).expect("a folder of the project").map(|file| file.expect("readable").path());
    let code = files.filter(|path| path.is_dir() || path.extension() == Some(OsStr::new("rs")));
    let stems = code.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    stems.filter(|stem| !["lib", "main", "mod", "tests"].contains(&stem.as_str())).collect()
}

/// The folders with more than ten modules.
fn rooms(folder: &Path, found: &mut Vec<PathBuf>) {
    let modules = modules_of(folder);
    if modules.len() > 10 {
        found.push(folder.to_owned());
    }
    modules.iter().map(|module| folder.join(module)).filter(|path| path.is_dir()).for_each(|path| rooms(&path, found));
}

#[test]
fn imports_point_one_way() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(project.join("docs/internals/architecture.md")).expect("a page of the project");
    let (_, orders) = page.split_once("## Which module may import which").expect("the orders");
    let blocks: Vec<&str> = orders.split("```").collect();
    let orders = [blocks[1], blocks[3]].into_iter().flat_map(|block| block.lines().skip(1));
    let mut ordered = BTreeSet::new();
    for (name, order) in orders.map(|line| line.split_once(": ").expect("a crate or a room, and its modules")) {
        let (of, room) = name.split_once('/').unwrap_or((name, ""));
        let src = project.join(of).join("src").join(room);
        let order: Vec<&str> = order.split(' ').collect();
        let listed: BTreeSet<String> = order.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(listed, modules_of(&src), "docs/internals/architecture.md, the order of {name}");
        let room = if room.is_empty() { "crate::".to_owned() } else { format!("crate::{}::", room.replace('/', "::")) };
        let (wrong, read) = upward(&src, &room, &order);
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
        assert!(name.contains('/') || read >= order.len() - 1, "the imports of {name} were read: {read}");
        ordered.insert(name.to_owned());
    }
    for name in ["netcore", "runner", "analyze", "schemas"] {
        let src = project.join(name).join("src");
        let mut found = Vec::new();
        rooms(&src, &mut found);
        for room in found {
            let below = room.strip_prefix(&src).expect("it was found there");
            let room = Path::new(name).join(below).display().to_string();
            assert!(
                ordered.contains(room.trim_end_matches('/')),
                "docs/internals/architecture.md has no order of {room}"
            );
        }
    }
}

#[test]
fn every_form_of_an_import_is_read() {
    let text = "use crate::one;\npub(crate) use crate::{two::{a, b}, three, four::c as d};\nlet x = crate::five::f();";
    assert_eq!(named(text, "crate::"), BTreeSet::from(["one", "two", "three", "four", "five"]));
    assert_eq!(named("use super::super::six::{a};", "super::super::"), BTreeSet::from(["six"]));
    assert!(named("use super::super::six;", "super::").contains("super"), "another depth");
}
