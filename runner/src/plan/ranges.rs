//! Ranges of hosts, as `nodeset` of ClusterShell reads them: `node[01-16,20]`, `r[1-2]n[1-3]`, `a[0-8/2],b`.
//!
//! A range is a set of names written short. Names come in the order written, each once. What `nodeset` has besides is left out:
//! operators other than the comma, groups (`@all`), and numbers below 0.

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Most hosts of a range, and of an inventory.
pub const MAX_HOSTS: usize = 65_536;

/// Longest name of a host, bytes: as the DNS has it.
const MAX_NAME: usize = 253;

/// Most digits of a number in brackets.
const MAX_DIGITS: usize = 18;

/// Whether it is written as a range or a list. Any other word is the name of one host.
pub fn is_range(text: &str) -> bool {
    text.contains(['[', ']', ','])
}

/// The names that a word stands for: those of a range or a list, or the word itself.
pub fn names(text: &str) -> Result<Vec<String>, String> {
    if is_range(text) { expand(text) } else { Ok(vec![text.to_owned()]) }
}

/// The names of a range or a list, in the order written, each once; otherwise what is wrong, a colon, and what to do.
pub fn expand(text: &str) -> Result<Vec<String>, String> {
    let mut all = spelt_out(text)?;
    let mut seen = HashSet::new();
    all.retain(|name| seen.insert(name.clone()));
    Ok(all)
}

/// The first name that a range or a list has more than once.
pub fn doubled(text: &str) -> Option<String> {
    let mut seen = HashSet::new();
    spelt_out(text).ok()?.into_iter().find(|name| !seen.insert(name.clone()))
}

/// Whether an address is written as a range: `10.1.0.[1-64]`. What IPv6 has in brackets has colons: `[fd00::1]:99`.
pub fn is_range_of_addresses(text: &str) -> bool {
    text.split_once('[').is_some_and(|(_, inner)| !inner.split(']').next().unwrap_or_default().contains(':'))
}

/// The addresses of a range, in the order written.
pub fn addresses(text: &str) -> Result<Vec<String>, String> {
    combinations(text)
}

/// The names as often as they are written.
fn spelt_out(text: &str) -> Result<Vec<String>, String> {
    let all = combinations(text)?;
    match all.iter().find(|name| !is_name(name)) {
        Some(name) => Err(format!(
            "`{}` cannot be the name of a host: a letter, then letters, digits, hyphens and underscores",
            short(name)
        )),
        None => Ok(all),
    }
}

/// Every text that a range or a list stands for, whatever its letters.
fn combinations(text: &str) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    let mut made = 0;
    for item in items(text)? {
        let parts = parts(item)?;
        let count = parts.iter().try_fold(1, |n: u64, part| n.checked_mul(part.count()));
        made = count.and_then(|n| n.checked_add(made)).unwrap_or(u64::MAX);
        if made > MAX_HOSTS as u64 {
            return Err(format!("`{}` is more than {MAX_HOSTS} hosts: write fewer", short(text)));
        }
        all.extend(product(&parts)?);
    }
    Ok(all)
}

/// The part of a text that fits into a sentence.
fn short(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Splits at the commas that are outside of brackets.
fn items(text: &str) -> Result<Vec<&str>, String> {
    let (mut all, mut start, mut open) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' if open => return Err(format!("`{}` has a bracket within brackets: node[1-4]", short(text))),
            ']' if !open => return Err(format!("`{}` closes a bracket that is not open: node[1-4]", short(text))),
            '[' => open = true,
            ']' => open = false,
            ',' if !open => {
                all.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if open {
        return Err(format!("`{}` has an open bracket: close it with ]", short(text)));
    }
    all.push(text[start..].trim());
    if all.iter().any(|item| item.is_empty()) {
        return Err(format!("`{}` has a comma without a host: write a name on each side", short(text)));
    }
    Ok(all)
}

/// A piece of a name: text, or the numbers in brackets.
enum Part<'a> {
    Text(&'a str),
    Numbers(Vec<Numbers>),
}

/// `01-16/2`, or a number alone.
struct Numbers {
    first: u64,
    last: u64,
    step: u64,
    /// Digits of each number, filled up with zeros.
    width: usize,
}

impl Numbers {
    fn count(&self) -> u64 {
        (self.last - self.first) / self.step + 1
    }

    fn texts(&self) -> impl Iterator<Item = String> {
        (0..self.count()).map(|k| format!("{:0width$}", self.first + k * self.step, width = self.width))
    }
}

impl Part<'_> {
    fn count(&self) -> u64 {
        match self {
            Part::Text(_) => 1,
            // Each is below 10^18; a text has too few of them to overflow before the limit is checked.
            Part::Numbers(all) => all.iter().fold(0, |n: u64, numbers| n.saturating_add(numbers.count())),
        }
    }
}

/// The pieces of one item; its brackets are known to be paired.
fn parts(item: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = item;
    while let Some((text, (inner, after))) =
        rest.split_once('[').and_then(|(text, open)| Some((text, open.split_once(']')?)))
    {
        if !parts.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            // `nodeset` refuses it as well: 1-2 and 3-4 could not be told apart in the name.
            return Err(format!(
                "`{}` has two brackets with nothing but digits between them: write a letter there, or one bracket",
                short(item)
            ));
        }
        let all = inner.split(',').map(|one| numbers(one.trim(), item)).collect::<Result<Vec<_>, _>>()?;
        let unequal = all.iter().find(|n| n.width == 0 && n.first.to_string().len() != n.last.to_string().len());
        if let Some(Numbers { first, last, .. }) = unequal.filter(|_| text.ends_with(|c: char| c.is_ascii_digit())) {
            // After `n1`, `nodeset` reads 8-10 as all numbers from 18 to 110, and Slurm as 18, 19 and 110.
            return Err(format!(
                "`{}` can be read in two ways, for {first}-{last} follows a digit: write that digit in the brackets",
                short(item)
            ));
        }
        parts.push(Part::Text(text));
        parts.push(Part::Numbers(all));
        rest = after;
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

fn numbers(text: &str, item: &str) -> Result<Numbers, String> {
    let wrong = |what: String| Err(format!("`{}` {what}", short(item)));
    if text.is_empty() {
        return wrong("has nothing between brackets or commas: write numbers, as in node[1-4,7]".to_owned());
    }
    let (range, step) = text.split_once('/').map_or((text, None), |(range, step)| (range, Some(step)));
    let (first, last) = range.split_once('-').map_or((range, None), |(first, last)| (first, Some(last.trim())));
    let (first, step) = (first.trim(), step.map(str::trim));
    for digits in [Some(first), last, step].into_iter().flatten() {
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return wrong(format!(
                "has `{}` in brackets: write numbers, as in node[1-4,7] or node[0-8/2]",
                short(text)
            ));
        }
        if digits.len() > MAX_DIGITS {
            return wrong(format!("has a number of more than {MAX_DIGITS} digits: is this the right name?"));
        }
    }
    if step.is_some() && last.is_none() {
        return wrong(format!("has the step `{text}` without a range: write for example 0-8/2"));
    }
    let last = last.unwrap_or(first);
    // Checked above: digits alone, and few enough.
    let number = |digits: &str| digits.parse::<u64>().unwrap_or(0);
    let step = step.map_or(1, number);
    if step == 0 {
        return wrong(format!("has the step 0 in `{text}`: write 1 or more"));
    }
    let is_padded = |digits: &str| digits.len() > 1 && digits.starts_with('0');
    let padded = is_padded(first) || is_padded(last);
    if padded && first.len() != last.len() {
        let width = first.len().max(last.len());
        return wrong(format!(
            "has `{text}` with zeros at one end alone: write {:0width$}-{:0width$}",
            number(first),
            number(last)
        ));
    }
    if number(first) > number(last) {
        return wrong(format!("counts down in `{text}`: write {last}-{first}"));
    }
    Ok(Numbers { first: number(first), last: number(last), step, width: if padded { first.len() } else { 0 } })
}

/// Every combination of an item's numbers, the last bracket fastest.
fn product(parts: &[Part<'_>]) -> Result<Vec<String>, String> {
    let mut names = vec![String::new()];
    for part in parts {
        match part {
            Part::Text(text) => names.iter_mut().for_each(|name| name.push_str(text)),
            Part::Numbers(all) => {
                let with = |name: &String| all.iter().flat_map(Numbers::texts).map(|n| format!("{name}{n}")).collect();
                names = names.iter().flat_map::<Vec<String>, _>(with).collect();
            }
        }
        // All have nearly the same length. A bound here also bounds the parts: each adds a letter.
        if let Some(long) = names.first().filter(|name| name.len() > MAX_NAME) {
            return Err(format!("`{}` is longer than {MAX_NAME} letters: is this the right name?", short(long)));
        }
    }
    Ok(names)
}

/// Whether a host, a test, a profile or a member can have that name.
pub fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The names written short, sorted, as `nodeset --fold` writes them: `node[1-16,20],x`.
pub fn fold<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    folds(names).join(",")
}

/// As [`fold`], one by one.
pub fn folds<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    // Names that differ in their numbers alone are written together.
    let mut alike: BTreeMap<Vec<&str>, BTreeSet<Vec<Number<'_>>>> = BTreeMap::new();
    for name in names {
        let (texts, numbers) = taken_apart(name);
        alike.entry(texts).or_default().insert(numbers);
    }
    let written = alike.into_iter().flat_map(|(texts, rows)| {
        boxes(rows).into_iter().map(move |sets| {
            let mut text = texts[0].to_owned();
            for (set, after) in sets.iter().zip(&texts[1..]) {
                text.push_str(&numbers_folded(set));
                text.push_str(after);
            }
            text
        })
    });
    written.collect()
}

/// A number of a name, as written. Sorted by length first, as `nodeset` does: 9 before 08, 99 before 001.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Number<'a> {
    length: usize,
    digits: &'a str,
}

/// Compares by numbers: `node2` comes before `node10`.
pub fn order(name: &str) -> impl Ord {
    taken_apart(name)
}

/// The texts around the numbers of a name, and the numbers.
fn taken_apart(name: &str) -> (Vec<&str>, Vec<Number<'_>>) {
    let (mut texts, mut numbers, mut rest) = (Vec::new(), Vec::new(), name);
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let after = &rest[start..];
        let length = after.bytes().take_while(u8::is_ascii_digit).count();
        texts.push(&rest[..start]);
        numbers.push(Number { length, digits: &after[..length] });
        rest = &after[length..];
    }
    texts.push(rest);
    (texts, numbers)
}

/// Rows that differ in one place are written as one, for each place from the last to the first.
fn boxes<'a>(rows: BTreeSet<Vec<Number<'a>>>) -> BTreeSet<Vec<BTreeSet<Number<'a>>>> {
    let places = rows.first().map_or(0, Vec::len);
    let alone = |row: Vec<Number<'a>>| row.into_iter().map(|n| BTreeSet::from([n])).collect::<Vec<_>>();
    let mut boxes: BTreeSet<Vec<BTreeSet<Number<'a>>>> = rows.into_iter().map(alone).collect();
    for place in (0..places).rev() {
        let mut merged: BTreeMap<Vec<BTreeSet<Number<'a>>>, BTreeSet<Number<'a>>> = BTreeMap::new();
        for mut sets in boxes {
            let set = sets.remove(place);
            merged.entry(sets).or_default().extend(set);
        }
        let whole = |(mut sets, set): (Vec<_>, _)| {
            sets.insert(place, set);
            sets
        };
        boxes = merged.into_iter().map(whole).collect();
    }
    boxes
}

/// `[1-3,9]`, or the number alone.
fn numbers_folded(numbers: &BTreeSet<Number<'_>>) -> String {
    let mut runs: Vec<(&str, &str)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((first, last)) if follows(first, last, number.digits) => *last = number.digits,
            _ => runs.push((number.digits, number.digits)),
        }
    }
    match runs.as_slice() {
        [(first, last)] if first == last => (*first).to_owned(),
        runs => {
            let text = |(first, last): &(&str, &str)| {
                if first == last { (*first).to_owned() } else { format!("{first}-{last}") }
            };
            format!("[{}]", runs.iter().map(text).collect::<Vec<_>>().join(","))
        }
    }
}

/// Whether a number continues the run from `first` to `last`.
fn follows(first: &str, last: &str, next: &str) -> bool {
    let grows = next.len() > last.len();
    // A run with zeros in front has numbers of one length.
    if next.len() > MAX_DIGITS || grows && (first.starts_with('0') && first.len() > 1) {
        return false;
    }
    // A longer number follows in the same run only without zeros in front.
    if grows && next.starts_with('0') {
        return false;
    }
    let value = |digits: &str| digits.parse::<u64>().unwrap_or(0);
    value(next) == value(last) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn expanded(text: &str) -> Vec<String> {
        expand(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn ranges_are_spelt_out_in_the_order_written() {
        for (text, names) in [
            ("node[1-3]", "node1 node2 node3"),
            ("node[01-03,20]", "node01 node02 node03 node20"),
            ("h[1-3,7],x[01-03]", "h1 h2 h3 h7 x01 x02 x03"),
            ("n[0-8/2]", "n0 n2 n4 n6 n8"),
            ("n[08-10]", "n08 n09 n10"),
            ("r[1-2]n[1-3]", "r1n1 r1n2 r1n3 r2n1 r2n2 r2n3"),
            ("n[1-2]-x, b", "n1-x n2-x b"),
            ("n1[0-2]", "n10 n11 n12"),
            ("n[3,1,3]", "n3 n1"),
            ("n[ 1 - 2 , 5 ]", "n1 n2 n5"),
            ("n[000]", "n000"),
            ("node[1]", "node1"),
            ("lab-a", "lab-a"),
        ] {
            assert_eq!(expanded(text).join(" "), names, "{text}");
        }
        assert_eq!(names("lab a").unwrap(), ["lab a"]);
        assert_eq!(doubled("n[1-4],x,n[3-5]").as_deref(), Some("n3"));
        assert_eq!(doubled("n[1-4],x"), None);
    }

    #[test]
    fn what_cannot_be_a_range_gets_a_sentence() {
        for (text, words) in [
            ("node[1-4", "has an open bracket: close it"),
            ("node1-4]", "closes a bracket that is not open"),
            ("n[[1-2]]", "a bracket within brackets"),
            ("n[]", "has nothing between"),
            ("n[1,]", "has nothing between"),
            ("n[a-c]", "has `a-c` in brackets: write numbers"),
            ("n[-1-2]", "has `-1-2` in brackets"),
            ("n[1-2-3]", "in brackets: write numbers"),
            ("n[5-1]", "counts down in `5-1`: write 1-5"),
            ("n[1/2]", "has the step `1/2` without a range"),
            ("n[1-5/0]", "has the step 0"),
            ("n[01-100]", "zeros at one end alone: write 001-100"),
            ("n[1-010]", "write 001-010"),
            ("n[1-2][3-4]", "two brackets with nothing but digits between them"),
            ("n[1-2]0[3-4]", "two brackets with nothing but digits between them"),
            ("n1[8-10]", "can be read in two ways, for 8-10 follows a digit"),
            ("a,,b", "a comma without a host"),
            ("a[1-2],", "a comma without a host"),
            ("n[1-65537]", "is more than 65536 hosts"),
            ("n[1-999999999999999999]x[1-999999999999999999]", "is more than 65536 hosts"),
            ("n[1-1000000000000000000]", "more than 18 digits"),
            ("[1-2]", "`1` cannot be the name of a host"),
            ("n[1-2]!n2", "`n1!n2` cannot be the name of a host"),
            ("@all,n1", "`@all` cannot be the name of a host"),
            ("", "a comma without a host"),
        ] {
            let why = expand(text).expect_err(text);
            assert!(why.contains(words), "{text}: {words} not in: {why}");
            assert!(why.contains(": "), "{text}: no remedy in: {why}");
        }
        let long = format!("{}[1-2]", "x".repeat(300));
        assert!(expand(&long).unwrap_err().contains("longer than 253 letters"));
        // Brackets without end cost no more than a name of that length.
        assert!(expand(&"a[1]".repeat(100_000)).unwrap_err().contains("longer than 253 letters"));
    }

    #[test]
    fn names_are_written_short_in_sentences() {
        let short = |names: &str| fold(names.split(' '));
        assert_eq!(short("n10 n9 n1 n2 n3 x"), "n[1-3,9-10],x");
        assert_eq!(short("n08 n9 n09 n10"), "n[9,08-10]");
        assert_eq!(short("r1n1 r1n2 r2n1 r2n2 r3n9"), "r[1-2]n[1-2],r3n9");
        assert_eq!(short("server"), "server");
        assert_eq!(fold([]), "");
    }

    fn number() -> impl Strategy<Value = String> {
        (0u32..120, 0usize..4).prop_map(|(n, width)| format!("{n:0width$}"))
    }

    fn host() -> impl Strategy<Value = String> {
        ("[a-c]{1,2}-?", number(), prop_oneof![Just(String::new()), number().prop_map(|n| format!("x{n}"))])
            .prop_map(|(name, first, second)| format!("{name}{first}{second}"))
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
            let _ = (names(&text), fold([text.as_str()]));
        }

        #[test]
        fn any_text_of_its_letters_is_read_or_refused(text in "[ab0-9,/\\[\\] -]{0,30}") {
            if let Ok(all) = expand(&text) {
                prop_assert!(!all.is_empty() && all.len() <= MAX_HOSTS && all.iter().all(|name| is_name(name)));
            }
        }

        #[test]
        fn what_is_written_short_is_read_as_the_same_names(hosts in proptest::collection::btree_set(host(), 1..40)) {
            let text = fold(hosts.iter().map(String::as_str));
            let again: BTreeSet<String> = expanded(&text).into_iter().collect();
            prop_assert_eq!(again, hosts, "{}", text);
        }
    }
}
