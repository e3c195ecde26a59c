//! YAML as a tree that knows the place of each word.
//!
//! Merging, axes and `check --explain` work on this tree, so that an error in a merged test points at the line that wrote
//! the value. `saphyr-parser` gives the events; aliases, depth and size are bounded here.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span as RawSpan, StrInput, Tag};

use super::diagnostics::{Diagnostic, Diagnostics, Span};

/// A value and where it was written.
#[derive(Clone, Debug)]
pub struct Node {
    pub value: Value,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum Value {
    /// Text; its type is read on demand.
    Scalar(Scalar),
    List(Vec<Node>),
    /// In the order written.
    Map(Vec<Entry>),
}

/// A scalar as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// Without quotes.
    pub text: Arc<str>,
    /// Whether it was written without quotes: only then can it be a number, a boolean or null.
    pub plain: bool,
}

/// A key and its value.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Arc<str>,
    pub key_span: Span,
    pub value: Node,
}

/// A scalar by YAML 1.2's core schema.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Typed<'a> {
    /// `~`, `null` or nothing.
    Null,
    Bool(bool),
    Unsigned(u64),
    /// Negative.
    Signed(i64),
    /// With a fraction or an exponent, or too large for the others.
    Float(f64),
    Text(&'a str),
}

impl Scalar {
    /// An unquoted scalar.
    pub fn plain(text: &str) -> Self {
        Self { text: text.into(), plain: true }
    }

    /// Numbers with leading zeros stay text: parsers disagree on their base.
    pub fn typed(&self) -> Typed<'_> {
        let text: &str = &self.text;
        if !self.plain {
            return Typed::Text(text);
        }
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Typed::Null,
            "true" | "True" | "TRUE" => return Typed::Bool(true),
            "false" | "False" | "FALSE" => return Typed::Bool(false),
            _ => {}
        }
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            || !digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
            || (digits.len() > 1 && digits.starts_with('0') && digits.as_bytes()[1].is_ascii_digit())
        {
            return Typed::Text(text);
        }
        if let Ok(number) = text.parse::<u64>() {
            return Typed::Unsigned(number);
        }
        if let Ok(number) = text.parse::<i64>() {
            return Typed::Signed(number);
        }
        text.parse().map_or(Typed::Text(text), Typed::Float)
    }
}

impl Node {
    /// Null, which in a plan removes what was inherited.
    pub fn null(span: Span) -> Self {
        Self { value: Value::Scalar(Scalar::plain("~")), span }
    }

    pub fn empty_map(span: Span) -> Self {
        Self { value: Value::Map(Vec::new()), span }
    }

    /// `None`: not a map.
    pub fn entries(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries()?.iter().find(|e| &*e.key == key)
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|e| &e.value)
    }

    pub fn key_span(&self, key: &str) -> Option<Span> {
        self.entry(key).map(|e| e.key_span)
    }

    /// The value at a dotted path.
    pub fn at(&self, path: &str) -> Option<&Node> {
        path.split('.').try_fold(self, |node, key| node.get(key))
    }

    /// `None`: not a list.
    pub fn items(&self) -> Option<&[Node]> {
        match &self.value {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    pub fn scalar(&self) -> Option<&Scalar> {
        match &self.value {
            Value::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// The text of a scalar that is not null.
    pub fn text(&self) -> Option<&str> {
        self.scalar().filter(|s| s.typed() != Typed::Null).map(|s| &*s.text)
    }

    /// Whether it is null, which in a plan removes what was inherited.
    pub fn is_null(&self) -> bool {
        self.scalar().is_some_and(|s| s.typed() == Typed::Null)
    }

    /// Sets the value at a dotted path, making maps on the way. Null is a value like any other.
    pub fn set(&mut self, path: &str, value: Node) {
        let (key, rest) = path.split_once('.').map_or((path, None), |(key, rest)| (key, Some(rest)));
        if self.entries().is_none() {
            self.value = Value::Map(Vec::new());
        }
        let Value::Map(entries) = &mut self.value else { return };
        let at = entries.iter().position(|e| &*e.key == key).unwrap_or_else(|| {
            let node = Node { value: Value::Scalar(Scalar::plain("")), span: value.span };
            entries.push(Entry { key: key.into(), key_span: value.span, value: node });
            entries.len() - 1
        });
        match rest {
            None => entries[at].value = value,
            Some(rest) => entries[at].value.set(rest, value),
        }
    }

    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        let Value::Map(entries) = &mut self.value else { return None };
        let at = entries.iter().position(|e| &*e.key == key)?;
        Some(entries.remove(at))
    }

    /// Number of nodes, itself included.
    pub fn size(&self) -> usize {
        1 + match &self.value {
            Value::Scalar(_) => 0,
            Value::List(items) => items.iter().map(Self::size).sum(),
            Value::Map(entries) => entries.iter().map(|e| e.value.size()).sum(),
        }
    }

    /// As JSON, keys in order. Numbers that JSON cannot hold become text.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Scalar(scalar) => match scalar.typed() {
                Typed::Null => serde_json::Value::Null,
                Typed::Bool(b) => b.into(),
                Typed::Unsigned(n) => n.into(),
                Typed::Signed(n) => n.into(),
                Typed::Float(n) => serde_json::Number::from_f64(n)
                    .map_or_else(|| serde_json::Value::String(scalar.text.to_string()), serde_json::Value::Number),
                Typed::Text(text) => text.into(),
            },
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Map(entries) => {
                serde_json::Value::Object(entries.iter().map(|e| (e.key.to_string(), e.value.to_json())).collect())
            }
        }
    }
}

/// Most bytes of a plan's text.
pub const MAX_BYTES: usize = 4 << 20;
/// Most nodes of a plan, after its aliases are followed.
const MAX_NODES: usize = 200_000;
/// Deepest nesting.
const MAX_DEPTH: usize = 64;

struct Builder<'a> {
    source: u16,
    text: &'a str,
    /// Byte offset of each character; empty where every character is one byte.
    offsets: Vec<u32>,
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    out: &'a mut Diagnostics,
}

/// Reads one YAML document. Mistakes go to `out`; `None`: nothing could be read.
pub fn parse(source: u16, out: &mut Diagnostics) -> Option<Node> {
    let text = out.sources.get(source).map(|s| s.text.clone()).unwrap_or_default();
    if text.len() > MAX_BYTES {
        out.push(Diagnostic::bare(format!(
            "{} has {} bytes: a plan may have {MAX_BYTES}",
            out.sources.get(source).map_or("the plan", |s| &s.name),
            text.len()
        )));
        return None;
    }
    let offsets = if text.is_ascii() {
        Vec::new()
    } else {
        #[expect(clippy::cast_possible_truncation, reason = "bounded by MAX_BYTES")]
        text.char_indices().map(|(at, _)| at as u32).collect()
    };
    let parser = Parser::new_from_str(&text);
    let mut builder = Builder { source, text: &text, offsets, parser, anchors: HashMap::new(), nodes: 0, out };
    match builder.document() {
        Ok(node) => node,
        Err(diagnostic) => {
            builder.out.push(*diagnostic);
            None
        }
    }
}

/// Reading stops at the first mistake in the syntax.
type Step<T> = Result<T, Box<Diagnostic>>;

impl<'a> Builder<'a> {
    #[expect(clippy::cast_possible_truncation, reason = "bounded by MAX_BYTES")]
    fn offset(&self, marker: Marker) -> u32 {
        let end = self.text.len() as u32;
        if self.offsets.is_empty() {
            (marker.index() as u32).min(end)
        } else {
            self.offsets.get(marker.index()).copied().unwrap_or(end)
        }
    }

    fn span(&self, raw: RawSpan) -> Span {
        let (start, end) = (self.offset(raw.start), self.offset(raw.end));
        Span { source: self.source, start, end: end.max(start) }
    }

    fn next(&mut self) -> Step<(Event<'a>, Span)> {
        match self.parser.next_event() {
            Some(Ok((event, raw))) => Ok((event, self.span(raw))),
            Some(Err(error)) => Err(Box::new(self.syntax(&error))),
            None => Ok((Event::StreamEnd, Span { source: self.source, ..Span::default() })),
        }
    }

    fn refuse<T>(diagnostic: Diagnostic) -> Step<T> {
        Err(Box::new(diagnostic))
    }

    fn document(&mut self) -> Step<Option<Node>> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(root),
                Event::StreamStart | Event::Nothing | Event::DocumentEnd => {}
                Event::DocumentStart(_) if root.is_some() => {
                    return Self::refuse(
                        Diagnostic::error(span, "a second YAML document").help("one file holds one plan"),
                    );
                }
                Event::DocumentStart(_) => {
                    let (event, span) = self.next()?;
                    root = Some(self.node(event, span, 0)?);
                }
                _ => return Self::refuse(Diagnostic::error(span, "this is not YAML that a plan can be made of")),
            }
        }
    }

    fn count(&mut self, nodes: usize, span: Span) -> Step<()> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            return Self::refuse(
                Diagnostic::error(span, format!("the plan grows beyond {MAX_NODES} values here"))
                    .help("aliases of aliases multiply: write fewer, or use profiles and extends"),
            );
        }
        Ok(())
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Step<Node> {
        if depth > MAX_DEPTH {
            return Self::refuse(Diagnostic::error(span, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.count(1, span)?;
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                Self::refuse_tag(tag.as_deref(), span)?;
                let plain = style == ScalarStyle::Plain;
                (Node { value: Value::Scalar(Scalar { text: Arc::from(&*text), plain }), span }, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                Self::refuse_tag(tag.as_deref(), span)?;
                let mut items = Vec::new();
                let mut all = span;
                loop {
                    let (event, span) = self.next()?;
                    if event == Event::SequenceEnd {
                        all.end = all.end.max(span.end);
                        break;
                    }
                    items.push(self.node(event, span, depth + 1)?);
                }
                (Node { value: Value::List(items), span: all }, anchor)
            }
            Event::MappingStart(anchor, tag) => {
                Self::refuse_tag(tag.as_deref(), span)?;
                let (entries, end) = self.entries(depth)?;
                (Node { value: Value::Map(entries), span: Span { end: end.max(span.end), ..span } }, anchor)
            }
            Event::Alias(id) => {
                let Some(node) = self.anchors.get(&id) else {
                    return Self::refuse(Diagnostic::error(span, "an alias to an anchor that contains it"));
                };
                let size = node.size();
                // Counted before it is copied: aliases of aliases grow exponentially.
                self.count(size, span)?;
                (self.anchors[&id].clone(), 0)
            }
            _ => return Self::refuse(Diagnostic::error(span, "this is not YAML that a plan can be made of")),
        };
        if anchor != 0 {
            // Anchors within anchors are copied once for each.
            self.count(node.size(), span)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn entries(&mut self, depth: usize) -> Step<(Vec<Entry>, u32)> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen: HashMap<Arc<str>, Span> = HashMap::new();
        loop {
            let (event, key_span) = self.next()?;
            let key: Cow<'_, str> = match event {
                Event::MappingEnd => return Ok((entries, key_span.end)),
                Event::Scalar(key, _, 0, None) => key,
                _ => return Self::refuse(Diagnostic::error(key_span, "a key must be a plain word")),
            };
            if key == "<<" {
                return Self::refuse(
                    Diagnostic::error(key_span, "`<<` is not part of YAML 1.2").help("use profiles and `extends`"),
                );
            }
            let key: Arc<str> = Arc::from(&*key);
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            if let Some(first) = seen.insert(key.clone(), key_span) {
                self.out.push(
                    Diagnostic::error(key_span, format!("`{key}` twice")).help("remove one").see(first, "first here"),
                );
                continue;
            }
            entries.push(Entry { key, key_span, value });
        }
    }

    fn refuse_tag(tag: Option<&Tag>, span: Span) -> Step<()> {
        match tag {
            // Quotes do what `!!str 5` does.
            Some(tag) => Self::refuse(Diagnostic::error(span, format!("the YAML tag `{tag}` means nothing in a plan"))),
            None => Ok(()),
        }
    }

    fn syntax(&self, error: &ScanError) -> Diagnostic {
        let at = self.offset(*error.marker());
        let line_start = self.text[..at as usize].rfind('\n').map_or(0, |n| n + 1);
        // The scanner may report a tab only on the next line.
        let previous = self.text[..line_start.saturating_sub(1)].rfind('\n').map_or(0, |n| n + 1);
        for start in [line_start, previous] {
            let line = self.text[start..].split('\n').next().unwrap_or("");
            let indent = line.len() - line.trim_start().len();
            if let Some(tab) = line[..indent].find('\t') {
                #[expect(clippy::cast_possible_truncation, reason = "bounded by MAX_BYTES")]
                let tab = (start + tab) as u32;
                return Diagnostic::error(
                    Span { source: self.source, start: tab, end: tab + 1 },
                    "a tab cannot indent YAML",
                )
                .help("use spaces");
            }
        }
        let end = self.text[at as usize..].chars().next().map_or(at, |c| at + u32::try_from(c.len_utf8()).unwrap_or(1));
        let wrong = Diagnostic::error(
            Span { source: self.source, start: at, end },
            format!("this is not YAML: {}", error.info()),
        );
        // Within braces a bracket ends the word before it: the mistake that a range of hosts invites.
        let is_range = self.text[at as usize..].starts_with('[')
            && self.text[..at as usize].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        if is_range {
            wrong.help("a range of hosts within braces or brackets takes quotes: \"node[1-4]\"")
        } else if ["mapping values", "block mapping", "block collection"].iter().any(|of| error.info().contains(of)) {
            wrong.help("keys of one map begin in the same column, and a blank stands behind each colon")
        } else {
            wrong
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::diagnostics::{Format, Sources},
        *,
    };

    #[test]
    fn scalars_follow_the_core_schema() {
        let kind = |text: &str| {
            let scalar = Scalar::plain(text);
            format!("{:?}", scalar.typed())
        };
        assert_eq!(kind("no"), "Text(\"no\")");
        assert_eq!(kind("010"), "Text(\"010\")");
        assert_eq!(kind("10"), "Unsigned(10)");
        assert_eq!(kind("-3"), "Signed(-3)");
        assert_eq!(kind("1.5e3"), "Float(1500.0)");
        assert_eq!(kind("1-2"), "Text(\"1-2\")");
        assert_eq!(kind("64KiB"), "Text(\"64KiB\")");
        assert_eq!(Scalar { text: "1".into(), plain: false }.typed(), Typed::Text("1"));
    }

    fn read(text: &str) -> (Option<Node>, Diagnostics) {
        let mut sources = Sources::default();
        let source = sources.add("t.yaml", text);
        let mut out = Diagnostics::new(sources);
        let node = parse(source, &mut out);
        (node, out)
    }

    fn complaint(text: &str) -> String {
        let (_, out) = read(text);
        out.render(Format::Human)
    }

    #[test]
    fn places_are_those_of_the_words() {
        let (node, out) = read("a: 1\nµ:\n  socket: {no_delay: true}\n");
        let node = node.unwrap();
        let value = node.at("µ.socket.no_delay").unwrap();
        assert_eq!(out.sources.place(value.span).to_string(), "t.yaml:3:22");
        assert_eq!(out.sources.slice(value.span), "true");
        assert_eq!(out.sources.slice(node.get("µ").unwrap().entry("socket").unwrap().key_span), "socket");
    }

    #[test]
    fn what_hurts_is_refused() {
        assert!(complaint("a:\n\tb: 1\n").contains("a tab cannot indent YAML"));
        assert!(complaint("a: 1\na: 2\n").contains("`a` twice"));
        assert!(complaint("a: 1\n---\nb: 1\n").contains("second YAML document"));
        assert!(complaint("a: &a {b: 1}\nc:\n  <<: *a\n").contains("extends"));
        assert!(complaint("a: !!python/object x\n").contains("tag"));
        assert!(complaint(&format!("{}1{}", "[".repeat(80), "]".repeat(80))).contains("nested deeper"));
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for n in 1..10 {
            let list = vec![format!("*a{}", n - 1); 10].join(", ");
            bomb = format!("{bomb}a{n}: &a{n} [{list}]\n");
        }
        assert!(complaint(&bomb).contains("grows beyond"));
        assert!(complaint(&"[".repeat(50_000)).contains("error"));
        assert!(complaint(&" ".repeat(MAX_BYTES + 1)).contains("bytes"));
    }

    #[test]
    fn anchors_of_values_are_followed() {
        let (node, out) = read("sizes: &s [1, 2]\nmatrix: {message_size: *s}\n");
        assert!(!out.has_errors());
        assert_eq!(node.unwrap().at("matrix.message_size").unwrap().items().unwrap().len(), 2);
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "[-a-c:{}\\[\\],&*!|>'\"#% \\n\\t~<µ]{0,60}") {
            let (_, out) = read(&text);
            let _ = out.render(Format::Human);
            let _ = out.render(Format::Json);
        }
    }
}
