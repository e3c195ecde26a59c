use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
};

use clap::Args as _;
use schemas::{
    columns::{CycleRow, Timestamp},
    words::CycleStatus,
};

use super::*;
use crate::history::store::append_cycles;

/// Text that would be a tag, end an attribute, or leave the folder.
const HOSTILE: &str = "../a<script>alert(1)</script>\"'&é";

fn noise(run: usize) -> f64 {
    [3.0, -12.0, 8.0, 11.0, -4.0, -9.0, 6.0][run * 5 % 7] / 4000.0
}

/// A history whose last three eighths are 3 % lower, in all cases.
fn history(folder: &Path, cases: &[&str], runs: usize) {
    let mut text = String::from("run_id,time,commit,version,machine,plan,labels,case_id,case,metric,centre,low,high\n");
    for run in 0..runs {
        for (at, case) in cases.iter().enumerate() {
            let value = if run < runs * 5 / 8 { 9.4e9 } else { 9.12e9 } * (1.0 + noise(run + at));
            let case = case.replace('"', "\"\"");
            writeln!(
                text,
                "\"r{run}{}\",2026-01-{:02}T{:02}:00:00Z,{run:08x},0.1,m1,nightly,\"{case}\",c{at},\"{case}\",throughput,\
                 {value},{},{}",
                if run % 9 == 8 { case.as_str() } else { "" },
                run / 24 + 1,
                run % 24,
                value * 0.998,
                value * 1.002
            )
            .unwrap();
        }
    }
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("m1.csv"), text).unwrap();
}

fn asked(words: &[&str]) -> Asked {
    use clap::FromArgMatches as _;
    let matches = Asked::augment_args(clap::Command::new("x")).get_matches_from([&["x"], words].concat());
    Asked::from_arg_matches(&matches).unwrap()
}

fn build(history: &Path, to: &Path) -> Result<usize, String> {
    write(history, &asked(&[]), None, to).map(|(pages, _)| pages).map_err(|e| e.to_string())
}

/// All files below a folder, with their contents.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            found.extend(files(&path).into_iter().map(|(inner, text)| (format!("{name}/{inner}"), text)));
        } else {
            found.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
    found
}

/// A page as its tags say it.
#[derive(Default)]
struct Parsed {
    ids: BTreeSet<String>,
    links: Vec<String>,
    tags: BTreeMap<String, usize>,
}

/// Reads a page strictly: every tag is closed in order, every attribute quoted, every `<` and `&` of text escaped.
fn parsed(name: &str, page: &str) -> Parsed {
    const VOID: [&str; 5] = ["meta", "input", "wbr", "br", "hr"];
    let mut found = Parsed::default();
    let mut open: Vec<String> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>\n").unwrap_or_else(|| panic!("{name}"));
    while let Some(at) = rest.find('<') {
        let inside = open.last().map_or("", String::as_str);
        if !matches!(inside, "style" | "script") {
            for entity in rest[..at].split('&').skip(1) {
                assert!(
                    ["amp;", "lt;", "gt;", "quot;", "#39;", "apos;"].iter().any(|e| entity.starts_with(e)),
                    "{name}: &{entity}"
                );
            }
        }
        rest = &rest[at + 1..];
        let end = if let Some(tag) = rest.strip_prefix('/') {
            let end = tag.find('>').unwrap();
            assert_eq!(open.pop().as_deref(), Some(&tag[..end]), "{name}");
            end + 1
        } else {
            let mut quoted = false;
            let end = rest
                .find(|c| {
                    quoted ^= c == '"';
                    c == '>' && !quoted
                })
                .unwrap();
            let tag = &rest[..end];
            let word = tag.split([' ', '/']).next().unwrap();
            assert!(!word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric()), "{name}: <{tag}>");
            *found.tags.entry(word.to_owned()).or_default() += 1;
            for (attribute, value) in attributes(&tag[word.len()..]) {
                assert!(!attribute.starts_with("on") && attribute != "src" && attribute != "style", "{name}: <{tag}>");
                match attribute {
                    "id" => assert!(found.ids.insert(value.to_owned()), "{name}: the id {value} is there twice"),
                    "href" => found.links.push(value.to_owned()),
                    _ => {}
                }
            }
            if !VOID.contains(&word) && !tag.ends_with('/') {
                open.push(word.to_owned());
            }
            end
        };
        rest = &rest[end + 1..];
        if matches!(open.last().map(String::as_str), Some("script" | "style")) {
            rest = &rest[rest.find("</").unwrap()..];
        }
    }
    assert_eq!(open, Vec::<String>::new(), "{name}");
    found
}

fn attributes(mut text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        let (value, rest) = rest.split_once('"').unwrap();
        found.push((name.trim().rsplit(' ').next().unwrap(), value));
        text = rest;
    }
    found
}

/// The file that a relative link of a page leads to.
fn resolved(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => assert!(parts.pop().is_some(), "{page}: {link} leaves the folder"),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Reads all pages, and follows every link.
fn check(folder: &Path) -> BTreeMap<String, String> {
    let files = files(folder);
    let pages: BTreeMap<&String, Parsed> =
        files.iter().filter(|(name, _)| *name != "pages.txt").map(|(name, text)| (name, parsed(name, text))).collect();
    for (name, page) in &pages {
        assert!(!page.links.is_empty(), "{name}");
        for link in &page.links {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { (*name).clone() } else { resolved(name, file) };
            let target = pages.get(&target).unwrap_or_else(|| panic!("{name}: {link} leads nowhere"));
            assert!(anchor.is_empty() || target.ids.contains(anchor), "{name}: {link} has no anchor");
        }
        let text = files[*name].replace("http://www.w3.org/2000/svg", "");
        assert!(!text.contains("http://") && !text.contains("https://"), "{name} refers to another site");
        assert_eq!(page.tags.get("script").copied().unwrap_or_default(), usize::from(!name.starts_with("series/")));
    }
    files
}

#[test]
fn every_link_resolves_and_foreign_text_is_text() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("history"), folder.path().join("site"));
    history(&from, &["bulk", HOSTILE, "bulk[message_size=1,streams=2]"], 40);
    assert_eq!(build(&from, &to), Ok(5));
    let files = check(&to);
    assert_eq!(files.len(), 6, "{:?}", files.keys());
    let index = &files["index.html"];
    assert!(index.contains("3 of 3 series got worse: "), "{index}");
    assert!(index.contains("&lt;script&gt;alert(1)") && index.contains("<svg class=\"spark\""));
    assert_eq!(index.matches("r25</a> of 2026-01-02 (15 runs)").count(), 1, "the three are one event");
    let page = files.iter().find(|(name, _)| name.starts_with("series/bulk-throughput-")).unwrap().1;
    assert!(page.contains("bulk throughput is 3.0 %") && page.contains("id=\"change-r25\""), "{page}");
    assert_eq!(page.matches("class=\"picture").count(), 2, "for screens and phones");
    assert!(files["runs.html"].contains("id=\"run-r25\""));
}

#[test]
fn the_same_history_gives_the_same_bytes_and_links_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("history"), folder.path().join("site"));
    history(&from, &["bulk", "trips"], 40);
    build(&from, &to).unwrap();
    let first = files(&to);
    build(&from, &to).unwrap();
    build(&from, &folder.path().join("again/deeper")).unwrap();
    assert_eq!(files(&to), first);
    assert_eq!(files(&folder.path().join("again/deeper")), first);
    // More runs, and a case that is no longer there.
    history(&from, &["bulk"], 48);
    build(&from, &to).unwrap();
    let later = check(&to);
    let gone: Vec<&String> = first.keys().filter(|name| !later.contains_key(*name)).collect();
    assert!(gone.len() == 1 && gone[0].starts_with("series/trips-"), "{gone:?}");
    assert!(later.keys().all(|name| first.contains_key(name)), "{:?}", later.keys());
}

#[test]
fn files_of_others_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("history"), folder.path().join("site"));
    history(&from, &["bulk"], 3);
    fs::create_dir(&to).unwrap();
    fs::write(to.join("thesis.tex"), "mine").unwrap();
    let error = build(&from, &to).unwrap_err();
    assert!(error.contains("thesis.tex") && error.contains("empty folder"), "{error}");
    assert_eq!(files(&to).len(), 1);
    fs::rename(to.join("thesis.tex"), to.join(".thesis")).unwrap();
    build(&from, &to).unwrap();
    // Beside the pages of an earlier build, other files may stand; and a list that names them removes none.
    fs::write(to.join("CNAME"), "example.org").unwrap();
    let list = fs::read_to_string(to.join("pages.txt")).unwrap();
    fs::write(to.join("pages.txt"), format!("{list}CNAME\n../history/m1.csv\nseries/../../x.html\n")).unwrap();
    build(&from, &to).unwrap();
    assert!(to.join("CNAME").exists() && from.join("m1.csv").exists());
    assert_eq!(fs::read_to_string(to.join("pages.txt")).unwrap(), list);
    // A page that is not in the list is not replaced.
    fs::write(to.join("pages.txt"), list.replace("runs.html\n", "")).unwrap();
    let error = build(&from, &to).unwrap_err();
    assert!(error.contains("runs.html") && error.contains("move it away"), "{error}");
    let error = build(&from, &to.join("CNAME")).unwrap_err();
    assert!(error.contains("is a file"), "{error}");
    let error = build(&from, &from).unwrap_err();
    assert!(error.contains("m1.csv"), "{error}");
}

#[test]
fn long_histories_have_bounded_pages() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("history"), folder.path().join("site"));
    history(&from, &["bulk"], 700);
    let text = fs::read_to_string(from.join("m1.csv")).unwrap();
    // The same days in seven other years.
    let mut more = text.clone();
    for year in 2027..2034 {
        for line in text.lines().skip(1) {
            let line = line.replace("2026-01-", &format!("{year}-01-")).replacen("\"r", &format!("\"y{year}r"), 1);
            writeln!(more, "{line}").unwrap();
        }
    }
    fs::write(from.join("m1.csv"), more).unwrap();
    build(&from, &to).unwrap();
    let files = check(&to);
    assert!(files["runs.html"].contains("The latest 5000 of 5600 runs"));
    let page = files.iter().find(|(name, _)| name.starts_with("series/")).unwrap().1;
    assert!(page.contains("The latest 1000 of 5600 runs"), "the rest is named");
    assert!(page.matches("<tr").count() < 1020 && page.len() < 1_000_000, "{}", page.len());
}

#[test]
fn outages_of_a_watch_stand_first_while_they_last() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("history"), folder.path().join("site"));
    let cycle = |minute: u32, status: CycleStatus| CycleRow {
        time: Some(Timestamp(format!("2026-01-03T00:{minute:02}:00Z"))),
        plan: Some("nightly".into()),
        host: Some("a".into()),
        status: Some(status),
        reason: status.is_outage().then(|| format!("{HOSTILE} is gone")),
        ..CycleRow::default()
    };
    // A watch whose far end never answered: no series, but a site.
    append_cycles(&from, &[cycle(0, CycleStatus::Down)]).unwrap();
    let latest = |latest| Asked { latest, ..asked(&[]) };
    write(&from, &asked(&[]), None, &to).unwrap();
    let answer = "outage: nightly on a from 2026-01-03T00:00:00Z on, and it lasts (1 cycle): ../a&lt;script&gt;";
    assert_eq!(files(&to)["index.html"].matches(answer).count(), 2, "the answer, and the list");
    // The cycle that ends it is in no file yet.
    history(&from, &["bulk"], 40);
    write(&from, &latest(Some(cycle(10, CycleStatus::Ok))), None, &to).unwrap();
    let index = &check(&to)["index.html"];
    assert!(index.contains("to 2026-01-03T00:10:00Z (1 cycle)") && !index.contains("it lasts"), "{index}");
    assert!(index.contains("1 of 1 series got worse"), "{index}");
    let other = Asked { plan: Some("nightly".into()), machine: Some("b".into()), ..asked(&[]) };
    assert!(write(&from, &other, None, &to).unwrap_err().to_string().contains("no such series"));
}

#[test]
fn short_series_have_a_page_that_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("history"), folder.path().join("site"));
    history(&from, &["bulk"], 1);
    build(&from, &to).unwrap();
    let files = check(&to);
    assert!(files["index.html"].contains("no series has 20."));
    let page = files.iter().find(|(name, _)| name.starts_with("series/")).unwrap().1;
    assert!(page.contains("1 run: 19 more make the 20"), "{page}");
}
