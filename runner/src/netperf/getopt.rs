//! Reads an argument list as getopt(3) does, with GNU's permutation.
//!
//! clap cannot express this grammar: options cluster (`-cC`), a value may be attached (`-l5`), the next word is a value even if it begins
//! with `-` (`-D -0.2`), operands may stand anywhere and are skipped, and some options take the next word only if it looks
//! right.

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
}
