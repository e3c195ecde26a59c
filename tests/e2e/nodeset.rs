//! Ranges of hosts read as the real `nodeset` reads them.

use std::{collections::BTreeSet, process::Command};

use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use runner::plan::ranges::{expand, fold};

use crate::needs::has_program;

/// What `nodeset` makes of its arguments; `None`: it refuses them.
fn nodeset(arguments: &[&str]) -> Option<String> {
    let output = Command::new("nodeset").args(arguments).output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

fn is_here() -> bool {
    has_program("nodeset", "clustershell")
}

fn set(names: impl IntoIterator<Item = impl Into<String>>) -> BTreeSet<String> {
    names.into_iter().map(Into::into).collect()
}

/// Compares what both make of a text.
fn compare(text: &str) {
    let theirs = nodeset(&["--expand", text]).map(|names| set(names.split(' ')));
    match (expand(text), theirs) {
        (Ok(ours), Some(theirs)) => assert!(set(ours.clone()) == theirs, "{text}: {ours:?}, {theirs:?}"),
        (Err(why), Some(_)) => assert!(why.contains("in two ways"), "{text}: {why}"),
        (ours, None) => assert!(ours.is_err(), "{text}: {ours:?}"),
    }
}

/// Texts that mean something, and some that nearly do.
fn range() -> impl Strategy<Value = String> {
    let number = || (0u32..130, 0usize..4).prop_map(|(n, width)| format!("{n:0width$}"));
    let numbers = prop_oneof![
        3 => number(),
        4 => (0u32..30, 0u32..9, 0usize..4).prop_map(|(first, more, width)| format!("{first:0width$}-{:0width$}", first + more)),
        2 => (0u32..9, 0u32..20, 1u32..9).prop_map(|(first, more, step)| format!("{first}-{}/{step}", first + more)),
        1 => (number(), number()).prop_map(|(first, last)| format!("{first}-{last}")),
    ];
    let bracket = proptest::collection::vec(numbers, 1..4).prop_map(|all| format!("[{}]", all.join(",")));
    let part = ("[a-d]{1,2}[0-9]?", prop_oneof![bracket, Just(String::new())]).prop_map(|(a, b)| a + &b);
    let name = proptest::collection::vec(part, 1..3).prop_map(|parts| parts.concat());
    proptest::collection::vec(name, 1..3).prop_map(|names| names.join(","))
}

#[test]
fn ranges_mean_the_same_to_nodeset() {
    if !is_here() {
        return;
    }
    for text in [
        "node[01-16,20]",
        "h[1-3,7],x[01-03]",
        "n[0-8/2]",
        "r[1-2]n[1-3]",
        "n[08-10]x",
        "n1[0-2]",
        "n1[08-10]",
        "n1[8-10]",
        "n[8-10]01",
        "n[3,1,01]",
        "n[ 1 - 2 , 5]",
        "n[1-5/02]",
        "n[01-100]",
        "n[5-1]",
        "n[1-2][3-4]",
        "n[1-2",
        "n[[1]]",
        "n[1,]",
        "n[]",
        "n[1/2]",
        "n[1-5/0]",
        "n[1-2],",
        "n[a-b]",
    ] {
        compare(text);
    }
    // The same texts each time: a test that fails must fail again.
    let mut runner = TestRunner::deterministic();
    for _ in 0..40 {
        compare(&range().new_tree(&mut runner).unwrap().current());
    }
}

#[test]
fn names_are_written_short_as_nodeset_does() {
    if !is_here() {
        return;
    }
    for names in [
        "node1",
        "n10 n9 n1 n2 n3",
        "n01 n1 n2 n02",
        "n99 n100 n001 n098",
        "n08 n09 n98 n99 n100",
        "a1 a a2 b x1 X1",
        "a-1 a-2 a1-2 a2-2",
        "r1n1 r1n2 r2n1 r2n2",
        "r1n1 r1n2 r2n1",
        "r1n1 r2n2",
    ] {
        let names: Vec<&str> = names.split(' ').collect();
        let theirs = nodeset(&[&["--fold"], names.as_slice()].concat()).unwrap();
        assert_eq!(fold(names.iter().copied()), theirs, "{names:?}");
        // What is written short is read as the same names, also by `nodeset`.
        let again = nodeset(&["--expand", &fold(names.iter().copied())]).unwrap();
        assert_eq!(set(again.split(' ')), set(names));
    }
}
