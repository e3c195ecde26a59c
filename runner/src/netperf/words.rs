//! Words of a command line as getopt(3) reads them, with GNU's permutation, and the values of netperf's options.
//!
//! clap cannot express this grammar: options cluster (`-cC`), a value may be attached (`-l5`), the next word is a value even if it begins
//! with `-` (`-D -0.2`), operands may stand anywhere and are skipped, and some options take the next word only if it looks
//! right.

use std::time::Duration;

use netcore::spec::Family;

/// A step of the reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// An option, with its value if it takes one.
    Option(char, Option<String>),
    /// A letter that is no option.
    Unknown(char),
    /// The last word is an option without its value.
    ValueMissing(char),
}

/// The message of getopt(3) about an item that is wrong, after the program's name.
pub fn complaint(item: &Item) -> Option<String> {
    match item {
        Item::Option(..) => None,
        Item::Unknown(letter) => Some(format!("invalid option -- '{letter}'")),
        Item::ValueMissing(letter) => Some(format!("option requires an argument -- '{letter}'")),
    }
}

/// A reading of a list of words.
pub struct Getopt<'a> {
    words: &'a [String],
    /// Option letters; a colon after one says that it takes a value.
    letters: &'static str,
    /// The next word.
    at: usize,
    /// Letters of a cluster that were not yet read.
    cluster: std::str::Chars<'a>,
}

impl<'a> Getopt<'a> {
    pub fn new(words: &'a [String], letters: &'static str) -> Self {
        Self { words, letters, at: 0, cluster: "".chars() }
    }

    /// Whether a letter is an option, and whether it takes a value.
    fn takes_value(&self, letter: char) -> Option<bool> {
        let place = self.letters.find(letter).filter(|_| letter != ':')?;
        Some(self.letters[place + letter.len_utf8()..].starts_with(':'))
    }

    /// The next option; `None` at the end, or at `--`.
    pub fn next_item(&mut self) -> Option<Item> {
        if self.cluster.as_str().is_empty() {
            let rest = &self.words[self.at..];
            let place = rest.iter().position(|word| word.starts_with('-') && word != "-")?;
            if rest[place] == "--" {
                return None;
            }
            self.at += place + 1;
            self.cluster = rest[place][1..].chars();
        }
        let letter = self.cluster.next()?;
        Some(match self.takes_value(letter) {
            None => Item::Unknown(letter),
            Some(false) => Item::Option(letter, None),
            Some(true) => {
                let attached = std::mem::replace(&mut self.cluster, "".chars()).as_str();
                if !attached.is_empty() {
                    return Some(Item::Option(letter, Some(attached.to_owned())));
                }
                match self.words.get(self.at) {
                    Some(value) => {
                        self.at += 1;
                        Item::Option(letter, Some(value.clone()))
                    }
                    None => Item::ValueMissing(letter),
                }
            }
        })
    }

    /// Takes the next word as the value of the option that was just read, if it satisfies `wanted`.
    pub fn take_if(&mut self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let word = self.words.get(self.at).filter(|word| self.cluster.as_str().is_empty() && wanted(word))?;
        self.at += 1;
        Some(word.clone())
    }
}

/// The words before the first `--` that getopt(3) sees as such, and those after it. The value of an option may be `--`.
pub fn split<'a>(words: &'a [String], letters: &'static str) -> (&'a [String], &'a [String]) {
    let mut reading = Getopt::new(words, letters);
    while reading.next_item().is_some() {}
    match words[reading.at..].iter().position(|word| word == "--") {
        Some(place) => (&words[..reading.at + place], &words[reading.at + place + 1..]),
        None => (words, &[]),
    }
}

/// The two halves of `a,b`.
pub type Halves<'a> = (Option<&'a str>, Option<&'a str>);

/// `a` sets both halves, `a,` the first, `,b` the second.
pub fn both(text: &str) -> Halves<'_> {
    match text.split_once(',') {
        None => (Some(text), Some(text)),
        Some((first, second)) => (given(first), given(second)),
    }
}

/// `a` sets the first half only.
pub fn first(text: &str) -> Halves<'_> {
    match text.split_once(',') {
        None => (given(text), None),
        Some((first, second)) => (given(first), given(second)),
    }
}

fn given(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// A pair of values, set as far as an option names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair<T> {
    pub local: Option<T>,
    pub remote: Option<T>,
}

impl<T> Pair<T> {
    /// Sets what is given.
    pub fn set(&mut self, (local, remote): Halves<'_>, read: impl Fn(&str) -> Result<T, String>) -> Result<(), String> {
        if let Some(text) = local {
            self.local = Some(read(text)?);
        }
        if let Some(text) = remote {
            self.remote = Some(read(text)?);
        }
        Ok(())
    }
}

/// A whole number with suffixes: `K M G` are powers of 1024, `k m g` of 1000. Other letters have no meaning, as in `64KB`.
pub fn number(text: &str) -> Result<i64, String> {
    let wrong = || format!("`{text}` is not a number: write 16384, 64K or 10m");
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let value: i64 = digits.parse().map_err(|_| wrong())?;
    let factor = text[digits.len()..].chars().map(|suffix| match suffix {
        'K' => 1 << 10,
        'M' => 1 << 20,
        'G' => 1 << 30,
        'k' => 1_000,
        'm' => 1_000_000,
        'g' => 1_000_000_000,
        _ => 1,
    });
    factor.into_iter().try_fold(value, i64::checked_mul).ok_or_else(wrong)
}

/// A size or a count: [`number`] that is not negative.
pub fn size(text: &str) -> Result<u64, String> {
    u64::try_from(number(text)?).map_err(|_| format!("`{text}` is negative"))
}

/// A port: a number below 65536.
pub fn port(text: &str) -> Result<u16, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a port: write a number up to 65535"))
}

/// Seconds, with a fraction if wanted (netperf reads the whole part only).
pub fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.trim().parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| format!("`{text}` is not a time in seconds"))
}

/// A family by netperf's rules: the first of these that the text contains.
pub fn family(text: &str) -> Result<Family, String> {
    let lower = text.to_ascii_lowercase();
    Ok(match () {
        () if lower.contains('6') => Family::V6,
        () if lower.contains("inet") || lower.contains('4') => Family::V4,
        () if lower.contains("unspec") || lower.contains('0') => Family::Any,
        () => return Err(format!("`{text}` is not an address family: write 4 or 6")),
    })
}

/// A type of service: a name, or a number of 0 to 255 in C's notation.
pub fn type_of_service(text: &str) -> Result<u8, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = |text: &str, base| u8::from_str_radix(text, base).ok();
    let class = |text: &str| digits(text, 10).filter(|class| *class < 8 && text.len() == 1);
    let named = match lower.as_str() {
        "ef" => Some(0xb8),
        "lowdelay" => Some(0x10),
        "throughput" => Some(0x08),
        "reliability" => Some(0x04),
        name if name.starts_with("cs") => class(&name[2..]).map(|class| class << 5),
        name if name.starts_with("af") && name.len() == 4 && name.is_ascii() => {
            let (class, drop) = (class(&name[2..3]), class(&name[3..4]));
            class.zip(drop).filter(|(c, d)| (1..=4).contains(c) && (1..=3).contains(d)).map(|(c, d)| c << 5 | d << 3)
        }
        hex if hex.starts_with("0x") => digits(&hex[2..], 16),
        octal if octal.len() > 1 && octal.starts_with('0') => digits(octal, 8),
        decimal => digits(decimal, 10),
    };
    named
        .ok_or_else(|| format!("`{text}` is not a type of service: write 0 to 255, 0xb8, or a name such as ef or af41"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn read(line: &str) -> Vec<Item> {
        let words = words(line);
        let mut reading = Getopt::new(&words, "cCD:l:t:4");
        std::iter::from_fn(|| reading.next_item()).collect()
    }

    fn with(letter: char, value: &str) -> Item {
        Item::Option(letter, Some(value.to_owned()))
    }

    #[test]
    fn values_may_be_attached_and_begin_with_a_dash() {
        assert_eq!(read("-l5 -D -0.20 -l -1000"), [with('l', "5"), with('D', "-0.20"), with('l', "-1000")]);
        assert_eq!(read("-cCl5"), [Item::Option('c', None), Item::Option('C', None), with('l', "5")]);
        assert_eq!(read("-l --"), [with('l', "--")]);
    }

    #[test]
    fn operands_are_skipped_and_a_double_dash_ends() {
        assert_eq!(read("one -4 - two -c -- -C"), [Item::Option('4', None), Item::Option('c', None)]);
        let line = words("-t TCP_RR -D -- -4 -- -r 1,1");
        let (before, after) = split(&line, "D:t:4");
        assert_eq!((before.len(), after), (5, &line[6..]));
        let line = words("-H h x");
        assert_eq!(split(&line, "H:"), (&line[..], &[][..]));
    }

    #[test]
    fn mistakes_read_as_getopt_says_them() {
        assert_eq!(read("-x -c:"), [Item::Unknown('x'), Item::Option('c', None), Item::Unknown(':')]);
        assert_eq!(read("-4 -l"), [Item::Option('4', None), Item::ValueMissing('l')]);
        assert_eq!(read("--help")[0], Item::Unknown('-'));
        assert_eq!(complaint(&Item::Unknown('0')).unwrap(), "invalid option -- '0'");
        assert_eq!(complaint(&Item::ValueMissing('l')).unwrap(), "option requires an argument -- 'l'");
    }

    #[test]
    fn an_optional_value_is_the_next_word_only() {
        let line = words("-c 100 -C x -cC 5");
        let mut reading = Getopt::new(&line, "cC");
        let digit = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
        reading.next_item();
        assert_eq!(reading.take_if(digit).as_deref(), Some("100"));
        reading.next_item();
        assert_eq!(reading.take_if(digit), None);
        assert_eq!(reading.next_item(), Some(Item::Option('c', None)));
        assert_eq!(reading.take_if(digit), None, "the next option of the cluster comes first");
        assert_eq!(reading.next_item(), Some(Item::Option('C', None)));
        assert_eq!(reading.take_if(digit).as_deref(), Some("5"));
    }

    /// An option as it is meant, and whether its value is attached.
    fn option() -> impl Strategy<Value = (char, Option<String>, bool)> {
        let flag = prop::sample::select(vec!['c', 'C', '4']).prop_map(|letter| (letter, None, false));
        let valued = (prop::sample::select(vec!['D', 'l', 't']), "[-a-z0-9.,]{1,6}", any::<bool>());
        prop_oneof![flag, valued.prop_map(|(letter, value, attached)| (letter, Some(value), attached))]
    }

    proptest! {
        /// However a list of options is written, it reads back the same.
        #[test]
        fn every_way_of_writing_reads_the_same(
            meant in prop::collection::vec((option(), any::<bool>(), prop::option::of("[a-z]{1,4}")), 0..12)
        ) {
            let mut line: Vec<String> = Vec::new();
            let mut open = false;
            for ((letter, value, attached), clusters, operand) in &meant {
                if open && *clusters {
                    line.last_mut().unwrap().push(*letter);
                } else {
                    line.push(format!("-{letter}"));
                }
                open = value.is_none();
                match value {
                    Some(value) if *attached => line.last_mut().unwrap().push_str(value),
                    Some(value) => line.push(value.clone()),
                    None => {}
                }
                if let Some(operand) = operand {
                    line.push(operand.clone());
                    open = false;
                }
            }
            let mut reading = Getopt::new(&line, "cCD:l:t:4");
            for ((letter, value, _), ..) in meant {
                prop_assert_eq!(reading.next_item(), Some(Item::Option(letter, value)));
            }
            prop_assert_eq!(reading.next_item(), None);
        }

        /// Nothing in a list makes the reading fail or go on for ever.
        #[test]
        fn any_words_are_read(line in prop::collection::vec("\\PC{0,6}", 0..12)) {
            let (before, after) = split(&line, "cCD:l:t:4");
            prop_assert!(before.len() + after.len() <= line.len());
            let mut reading = Getopt::new(&line, "cCD:l:t:4");
            let steps = std::iter::from_fn(|| reading.next_item()).count();
            prop_assert!(steps <= line.iter().map(|word| word.chars().count()).sum());
        }
    }

    #[test]
    fn pairs_split_by_their_kind() {
        for (text, sets_both, sets_first) in [
            ("a", (Some("a"), Some("a")), (Some("a"), None)),
            ("a,", (Some("a"), None), (Some("a"), None)),
            (",b", (None, Some("b")), (None, Some("b"))),
            ("a,b", (Some("a"), Some("b")), (Some("a"), Some("b"))),
        ] {
            assert_eq!(both(text), sets_both, "{text}");
            assert_eq!(first(text), sets_first, "{text}");
        }
        let mut pair = Pair { local: Some(1), remote: Some(2) };
        pair.set(both(",7"), number).unwrap();
        assert_eq!(pair, Pair { local: Some(1), remote: Some(7) });
        assert!(pair.set(both("x"), number).unwrap_err().contains("`x` is not a number"));
    }

    #[test]
    fn suffixes_multiply() {
        for (text, value) in [
            ("0", 0),
            ("-1000", -1000),
            ("64K", 65536),
            ("64KB", 65536),
            ("1M", 1 << 20),
            ("10m", 10_000_000),
            ("3G", 3 << 30),
            ("2g", 2_000_000_000),
        ] {
            assert_eq!(number(text), Ok(value), "{text}");
        }
        for text in ["", "K", "1.5", "0x10", "1K2", "99999999999G"] {
            assert!(number(text).is_err(), "{text}");
        }
        assert!(size("-1").is_err());
        assert!(port("65536").is_err());
    }

    #[test]
    fn services_have_names() {
        for (text, value) in [
            ("ef", 0xb8),
            ("EF", 0xb8),
            ("af11", 0x28),
            ("af43", 0x98),
            ("cs0", 0),
            ("cs7", 0xe0),
            ("lowdelay", 0x10),
            ("0xb8", 0xb8),
            ("0x0", 0),
            ("010", 8),
            ("255", 255),
            ("0", 0),
        ] {
            assert_eq!(type_of_service(text), Ok(value), "{text}");
        }
        for text in ["256", "0x100", "af44", "af5", "afé", "cs8", "-1", "fast", ""] {
            assert!(type_of_service(text).is_err(), "{text}");
        }
    }

    #[test]
    fn families_are_found_in_the_text() {
        for (text, expected) in [
            ("4", Family::V4),
            ("inet", Family::V4),
            ("AF_INET", Family::V4),
            ("inet6", Family::V6),
            ("6", Family::V6),
            ("unspec", Family::Any),
            ("0", Family::Any),
        ] {
            assert_eq!(family(text), Ok(expected), "{text}");
        }
        assert!(family("x").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_value_or_an_error(text in "\\PC{0,12}") {
            let _ = (number(&text), port(&text), seconds(&text), family(&text), type_of_service(&text));
            let (_, _) = (both(&text), first(&text));
        }

        #[test]
        fn numbers_read_back(value in any::<i32>()) {
            prop_assert_eq!(number(&value.to_string()), Ok(i64::from(value)));
        }
    }
}
