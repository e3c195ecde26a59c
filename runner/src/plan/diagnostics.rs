//! Errors and warnings about a plan, for people, programs and GitHub, with their places: byte ranges, lines and columns.

use std::fmt::Write as _;

use analyze::export::annotations::{At, annotation};
use codespan_reporting::{
    diagnostic::{Diagnostic as Snippet, Label, Severity as SnippetSeverity},
    files::SimpleFiles,
    term,
};
use schemas::{text::plain_lines, vocabulary};
use serde_json::{Value, json};

use crate::error::Error;

/// A range of bytes in one of a plan's sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Index in [`Sources`].
    pub source: u16,
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// Index of the built-in body among the sources; the plan itself is 0.
pub const BUILT_IN_SOURCE: u16 = 1;

/// A text of a plan: its file, or one `--set` argument.
#[derive(Clone, Debug)]
pub struct Source {
    /// The path as given, `<stdin>`, or `--set`.
    pub name: String,
    pub text: String,
}

/// The sources of one plan.
#[derive(Clone, Debug, Default)]
pub struct Sources(Vec<Source>);

/// A place for people: file, line, column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePlace {
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl From<SourcePlace> for At {
    fn from(place: SourcePlace) -> Self {
        Self { file: place.file, line: place.line, column: Some(place.column) }
    }
}

impl std::fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl Sources {
    /// Adds a source and returns its index.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> u16 {
        self.0.push(Source { name: name.into(), text: text.into() });
        u16::try_from(self.0.len() - 1).unwrap_or(u16::MAX)
    }

    pub fn get(&self, index: u16) -> Option<&Source> {
        self.0.get(usize::from(index))
    }

    /// In the order added.
    pub fn all(&self) -> &[Source] {
        &self.0
    }

    pub fn slice(&self, span: Span) -> &str {
        self.get(span.source).and_then(|s| s.text.get(span.start as usize..span.end as usize)).unwrap_or("")
    }

    pub fn place_at(&self, source: u16, offset: u32) -> SourcePlace {
        let Some(Source { name, text }) = self.get(source) else {
            return SourcePlace { file: String::new(), line: 1, column: 1 };
        };
        let mut offset = (offset as usize).min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &text[..offset];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        SourcePlace {
            file: name.clone(),
            line: before.bytes().filter(|b| *b == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// The start of a span.
    pub fn place(&self, span: Span) -> SourcePlace {
        self.place_at(span.source, span.start)
    }
}

schemas::words! {
    Severity {
        Error = "error",
        /// The plan can run, but probably does not mean what it says.
        Warning = "warning",
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The line of the plan, with a pointer under the word.
    #[default]
    Human,
    /// One JSON array per plan.
    Json,
    /// GitHub annotations.
    Github,
}

/// One mistake: what is wrong, where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    /// A sentence without a full stop.
    pub message: String,
    /// The word to point at; `None` where no text has it (a missing file).
    pub span: Option<Span>,
    /// The remedy, printed at the pointer.
    pub help: String,
    /// Other places, with a word on each.
    pub related: Vec<(Span, String)>,
}

impl Diagnostic {
    pub fn error(span: Span, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            message: message.into(),
            span: Some(span),
            help: String::new(),
            related: Vec::new(),
        }
    }

    /// An error without a place.
    pub fn bare(message: impl Into<String>) -> Self {
        Self { span: None, ..Self::error(Span::default(), message) }
    }

    pub fn warning(span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(span, message) }
    }

    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    pub fn see(mut self, span: Span, word: impl Into<String>) -> Self {
        self.related.push((span, word.into()));
        self
    }
}

/// Most diagnostics of a plan: each one costs a search of those before it.
const MOST: usize = 1000;

/// Most names among which a word is looked for: each of many mistakes looks through all of them.
const SEARCHED: usize = 1000;

/// Most names that a suggestion lists: more are a wall of words.
const LISTED: usize = 24;

/// Longest name that is looked for among others, characters: counting edits takes the product of two lengths in time and
/// memory.
const LONGEST_NAME: usize = 100;

/// The diagnostics of one plan, with its texts.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    pub sources: Sources,
    list: Vec<Diagnostic>,
}

impl From<Diagnostics> for Error {
    fn from(wrong: Diagnostics) -> Self {
        Self::Plan(wrong.render(Format::Human))
    }
}

impl Diagnostics {
    pub fn new(sources: Sources) -> Self {
        Self { sources, list: Vec::new() }
    }

    /// Adds one, unless it is there already: many tests inherit the same default. Of very many the last one says that there are
    /// more.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if self.list.contains(&diagnostic) {
            return;
        }
        if self.list.len() < MOST {
            self.list.push(diagnostic);
        } else if let Some(more) = self.list.get_mut(MOST) {
            more.severity = more.severity.min(diagnostic.severity);
        } else {
            let more = Diagnostic::bare(format!("there are more than {MOST} mistakes: the others are left out"));
            self.list.push(Diagnostic { severity: diagnostic.severity, ..more });
        }
    }

    /// Whether further diagnostics are left out.
    pub fn is_full(&self) -> bool {
        self.list.len() > MOST
    }

    /// Adds an error at a place, and what to do about it.
    pub fn error(&mut self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.push(Diagnostic::error(span, message).help(help));
    }

    /// Adds an error from one sentence: what is wrong, a colon, what to do.
    pub fn error_of(&mut self, span: Span, sentence: &str) {
        let (message, help) = halves(sentence);
        self.error(span, message, help);
    }

    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|d| d.severity == Severity::Error)
    }

    /// In the order of their places.
    pub fn sorted(&self) -> Vec<&Diagnostic> {
        let mut all: Vec<&Diagnostic> = self.list.iter().collect();
        // The one that says that there are more is the last.
        let listed = all.len().min(MOST);
        all[..listed].sort_by_key(|d| d.span.map(|s| (s.source, s.start)));
        all
    }

    /// A sentence each, with its place: `lab.yaml:14: … (what to do)`.
    pub fn sentences(&self) -> Vec<String> {
        let sentence = |d: &Diagnostic| {
            let place = d.span.map(|span| self.sources.place(span));
            let place = place.map(|p| format!("{}:{}: ", p.file, p.line)).unwrap_or_default();
            let help = if d.help.is_empty() { String::new() } else { format!(" ({})", d.help) };
            format!("{place}{}{help}", d.message)
        };
        self.sorted().into_iter().map(sentence).collect()
    }

    /// The text to print; if not empty, it ends in a line end.
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Human => self.human(),
            Format::Json => self.json(),
            Format::Github => self.github(),
        }
    }

    fn human(&self) -> String {
        let mut files = SimpleFiles::new();
        let ids: Vec<usize> = self.sources.all().iter().map(|s| files.add(s.name.as_str(), s.text.as_str())).collect();
        let config = term::Config::default();
        let mut out = String::new();
        for diagnostic in self.sorted() {
            let severity = match diagnostic.severity {
                Severity::Error => SnippetSeverity::Error,
                Severity::Warning => SnippetSeverity::Warning,
            };
            let Some(span) = diagnostic.span else {
                let _ = writeln!(out, "{}: {}", diagnostic.severity.as_str(), diagnostic.message);
                for line in diagnostic.help.lines() {
                    let _ = writeln!(out, "  {line}");
                }
                continue;
            };
            let mut labels =
                vec![Label::primary(ids[usize::from(span.source)], self.range(span)).with_message(&diagnostic.help)];
            labels.extend(diagnostic.related.iter().map(|(span, word)| {
                Label::secondary(ids[usize::from(span.source)], self.range(*span)).with_message(word)
            }));
            let snippet = Snippet::new(severity).with_message(&diagnostic.message).with_labels(labels);
            if term::emit_to_string(&mut out, &config, &files, &snippet).is_err() {
                // Only a place outside its file causes this; the sentence remains.
                let _ = writeln!(out, "{}: {}", diagnostic.severity.as_str(), diagnostic.message);
            }
        }
        let errors = self.list.iter().filter(|d| d.severity == Severity::Error).count();
        if errors > 1 {
            let _ = writeln!(out, "{errors} errors");
        }
        // Lines of the plan are quoted.
        plain_lines(&out)
    }

    /// The range to underline: the first line of a block.
    fn range(&self, span: Span) -> std::ops::Range<usize> {
        let first = self.sources.slice(span).split('\n').next().unwrap_or("").trim_end().len();
        span.start as usize..span.start as usize + first
    }

    fn json(&self) -> String {
        let place = |span: Span| {
            let (start, end) = (self.sources.place(span), self.sources.place_at(span.source, span.end));
            json!({
                "file": start.file, "line": start.line, "column": start.column,
                "end_line": end.line, "end_column": end.column,
            })
        };
        let list = self.sorted().into_iter().map(|d| {
            let mut object = json!({"severity": d.severity.as_str(), "message": d.message, "help": d.help});
            add(&mut object, d.span.map(place).unwrap_or_default());
            let related = d.related.iter().map(|(span, word)| {
                let mut object = place(*span);
                object["message"] = word.as_str().into();
                object
            });
            if !d.related.is_empty() {
                object["related"] = related.collect();
            }
            object
        });
        format!("{:#}\n", list.collect::<Value>())
    }

    fn github(&self) -> String {
        let mut out = String::new();
        for d in self.sorted() {
            let at = d.span.map(|span| self.sources.place(span).into());
            out.push_str(&annotation(d.severity.as_str(), at.as_ref(), &join(&d.message, &d.help)));
            out.push('\n');
        }
        out
    }
}

fn add(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

fn join(message: &str, help: &str) -> String {
    if help.is_empty() { message.to_owned() } else { format!("{message}: {help}") }
}

/// Splits `what is wrong: what to do`.
pub fn halves(sentence: &str) -> (&str, &str) {
    sentence.split_once(": ").unwrap_or((sentence, ""))
}

/// The nearest candidate, if one is near enough to be a typo.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > LONGEST_NAME {
        return None;
    }
    let lower = word.to_ascii_lowercase().replace('-', "_");
    let length = lower.chars().count();
    let most = |c: &str| 1 + c.len().min(lower.len()) / 4;
    candidates
        .into_iter()
        // Cheap first: edits are at least the difference in length, and counting them costs the product of the lengths.
        .filter(|c| c.len() <= LONGEST_NAME && c.chars().count().abs_diff(length) <= most(c))
        .map(|c| (strsim::damerau_levenshtein(&lower, &c.to_ascii_lowercase().replace('-', "_")), c))
        .filter(|(distance, c)| *distance <= most(c))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}

/// `did you mean …?`, or the list of candidates. A word that means one of them in another tool comes before one that looks alike.
pub fn suggest(word: &str, candidates: &[&str]) -> String {
    let alike = || nearest(word, candidates.iter().copied().take(SEARCHED));
    match vocabulary::key_meant(word, candidates).or_else(alike) {
        Some(near) => format!("did you mean `{near}`?"),
        None if candidates.is_empty() => String::new(),
        None => {
            let (listed, more) = candidates.split_at(candidates.len().min(LISTED));
            let more = if more.is_empty() { String::new() } else { format!(", … and {} more", more.len()) };
            format!("known here: {}{more}", listed.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_from_one() {
        let mut sources = Sources::default();
        let file = sources.add("a.yaml", "a: 1\nµs: x\n");
        let place = sources.place(Span { source: file, start: 10, end: 11 });
        assert_eq!(place.to_string(), "a.yaml:2:5");
        assert_eq!(sources.slice(Span { source: file, start: 5, end: 8 }), "µs");
        assert_eq!(sources.place_at(file, 99).line, 3);
    }

    fn sample() -> Diagnostics {
        let mut sources = Sources::default();
        let file = sources.add("lab.yaml", "tests:\n  a:\n    mesage_size: 64KiB\n    rate: 10Mbps\n");
        let mut all = Diagnostics::new(sources);
        all.push(Diagnostic::error(Span { source: file, start: 48, end: 54 }, "`10Mbps` does not say bits or bytes"));
        let first = Diagnostic::error(Span { source: file, start: 16, end: 27 }, "unknown key `mesage_size`")
            .help("did you mean `message_size`?");
        all.push(first.clone());
        all.push(first);
        all
    }

    #[test]
    fn what_is_meant_by_a_word_that_is_none_is_not_asked_of_long_ones() {
        assert_eq!(nearest("tcp_steam", ["tcp_stream", "tcp_rr"]), Some("tcp_stream"));
        // Counting their edits would take ten billion steps.
        let long = "x".repeat(100_000);
        assert_eq!(nearest(&long, ["x", "y".repeat(50_000).as_str()]), None);
    }

    #[test]
    fn people_get_the_line_and_a_pointer_in_order() {
        let text = sample().render(Format::Human);
        let unknown = text.find("error: unknown key `mesage_size`").unwrap();
        assert!(text.contains("┌─ lab.yaml:3:5"));
        assert!(text.contains("mesage_size: 64KiB"));
        assert!(text.contains("^^^^^^^^^^^ did you mean `message_size`?"));
        assert!(unknown < text.find("10Mbps` does not").unwrap());
        assert_eq!(text.matches("unknown key").count(), 1);
    }

    #[test]
    fn programs_get_json_and_github_its_commands() {
        let json: Value = serde_json::from_str(&sample().render(Format::Json)).unwrap();
        assert_eq!((json[0]["line"].as_u64(), json[0]["end_column"].as_u64()), (Some(3), Some(16)));
        assert!(sample().render(Format::Github).starts_with(
            "::error file=lab.yaml,line=3,col=5::unknown key `mesage_size`: did you mean `message_size`?\n"
        ));
    }

    #[test]
    fn near_words_are_suggested() {
        assert_eq!(nearest("mesage_size", ["message_size", "rate"]), Some("message_size"));
        assert_eq!(nearest("nodelay", ["no_delay", "cork"]), Some("no_delay"));
        assert_eq!(nearest("zzz", ["no_delay", "cork"]), None);
        assert!(suggest("zzz", &["a_long_name"]).contains("known here: a_long_name"));
    }
}
