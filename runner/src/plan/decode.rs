//! Typed values from the tree by serde, with every mistake instead of the first.
//!
//! serde stops at the first error. So each error is noted with the place of its word, the word is set aside, and the value
//! is read again without it, until the rest has no mistake.

use std::{collections::HashSet, fmt};

use serde::{
    Deserialize, Deserializer as _,
    de::{self, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor},
    forward_to_deserialize_any,
};

use super::{
    diagnostics::{Diagnostics, Span, halves, suggest},
    quantity,
    tree::{Entry, Node, Typed, Value},
};

/// A mistake. Its place is added on the way up.
#[derive(Debug)]
pub struct Error {
    message: String,
    help: String,
    /// The missing key, if one is missing.
    missing: Option<&'static str>,
    /// Place and identity of the word; the innermost list or map sets it.
    at: Option<(Span, usize)>,
}

impl Error {
    fn new(message: String, help: String) -> Self {
        Self { message, help, missing: None, at: None }
    }

    fn or_at(mut self, span: Span, identity: usize) -> Self {
        self.at.get_or_insert((span, identity));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(text: T) -> Self {
        // The workspace's error types say "what is wrong: what to do"; the second half goes to the pointer.
        let text = text.to_string();
        let (message, help) = halves(&text);
        Self::new(message.to_owned(), help.to_owned())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(format!("expected {}, found {}", plain(expected), describe(found)), spelling(found, &plain(expected)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(format!("expected {}, found {}", plain(expected), describe(found)), String::new())
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("unknown value `{variant}`"), suggest(variant, expected))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let nested = field.split_once('.').filter(|(map, _)| expected.contains(map));
        let help = nested.map_or_else(|| suggest(field, expected), |(map, key)| format!("write `{map}: {{{key}: …}}`"));
        Self::new(format!("unknown key `{field}`"), help)
    }

    fn missing_field(field: &'static str) -> Self {
        Self { missing: Some(field), ..Self::new(format!("`{field}` is missing"), format!("add `{field}:` here")) }
    }
}

/// The expected value in words instead of Rust's types.
fn plain(expected: &dyn de::Expected) -> String {
    let name = expected.to_string();
    match name.as_str() {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more".to_owned(),
        "i8" | "i16" | "i32" | "i64" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "struct TestBody" => "a test, such as {workload: tcp_stream}".to_owned(),
        "struct Host" => "a host, such as {address: b.lab}".to_owned(),
        "a map" => "a map (`name: …` lines)".to_owned(),
        _ if name.starts_with("struct ") => "a map of keys".to_owned(),
        _ if name.starts_with("enum ") => "a word".to_owned(),
        _ if name.starts_with("a sequence") => "a list".to_owned(),
        _ => name,
    }
}

fn describe(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Str(text) => format!("`{text}`"),
        Unexpected::Bool(b) => format!("`{b}`"),
        Unexpected::Unsigned(n) => format!("`{n}`"),
        Unexpected::Signed(n) => format!("`{n}`"),
        Unexpected::Float(n) => format!("`{n}`"),
        Unexpected::Unit => "nothing".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a map".to_owned(),
        other => other.to_string(),
    }
}

/// Help for a list in the place of a value.
const SWEPT: &str = "several values of a test's key are swept: matrix: {streams: [1, 4]}";

/// Help for words that YAML 1.2 reads as text, `yes`, `0x10`, and quoted values, and for a list in the place of a value.
fn spelling(found: Unexpected<'_>, expected: &str) -> String {
    match found {
        Unexpected::Str(text) if ["yes", "on", "y"].contains(&text.to_ascii_lowercase().as_str()) => {
            "write true".to_owned()
        }
        Unexpected::Str(text) if ["no", "off", "n"].contains(&text.to_ascii_lowercase().as_str()) => {
            "write false".to_owned()
        }
        Unexpected::Str("true" | "false") if expected.contains("boolean") => "write it without quotes".to_owned(),
        Unexpected::Str(text) if expected.contains("number") && text.starts_with(|c: char| c.is_ascii_digit()) => {
            "write it in plain decimal digits, without quotes".to_owned()
        }
        Unexpected::Seq if !["map", "a test,", "a host,"].iter().any(|other| expected.contains(other)) => {
            SWEPT.to_owned()
        }
        Unexpected::Unit if expected.starts_with("a test,") => {
            "its keys stand below its name, further to the right".to_owned()
        }
        Unexpected::Unit if expected == "a string" => "the word null is read as nothing: quote it".to_owned(),
        _ => String::new(),
    }
}

/// Reads a typed value without the words that are mistakes; the mistakes go to `out`.
pub fn decode<'a, T: Deserialize<'a>>(node: &'a Node, out: &mut Diagnostics) -> Option<T> {
    let mut aside = HashSet::new();
    loop {
        let error = match T::deserialize(Reader { node, aside: &aside }) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let (span, identity) = error.at.unwrap_or((node.span, identity(node)));
        let hidden = error.missing.is_some_and(|key| was_set_aside(node, identity, key, &aside));
        if !hidden {
            out.error(span, error.message, error.help);
        }
        // Ends: the root cannot be set aside, and each word only once. Each mistake costs a new start.
        if error.at.is_none() || !aside.insert(identity) || out.is_full() {
            return None;
        }
    }
}

fn identity<T>(thing: &T) -> usize {
    std::ptr::from_ref(thing) as usize
}

/// Whether the map has `key` after all, set aside for a mistake that is already reported.
fn was_set_aside(root: &Node, map: usize, key: &str, aside: &HashSet<usize>) -> bool {
    fn find(node: &Node, wanted: usize) -> Option<&Node> {
        match &node.value {
            _ if identity(node) == wanted => Some(node),
            Value::Scalar(_) => None,
            Value::List(items) => items.iter().find_map(|n| find(n, wanted)),
            Value::Map(entries) => {
                entries.iter().find_map(|e| if identity(e) == wanted { Some(&e.value) } else { find(&e.value, wanted) })
            }
        }
    }
    find(root, map).and_then(|m| m.entry(key)).is_some_and(|entry| aside.contains(&identity(entry)))
}

#[derive(Clone, Copy)]
struct Reader<'a, 'b> {
    node: &'a Node,
    aside: &'b HashSet<usize>,
}

impl<'a> Reader<'a, '_> {
    fn map<V: Visitor<'a>>(self, visitor: V, extensions: bool) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Map(entries) => {
                visitor.visit_map(Entries { rest: entries.iter(), value: None, aside: self.aside, extensions })
            }
            _ => self.deserialize_any(visitor),
        }
    }
}

impl<'de> de::Deserializer<'de> for Reader<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Scalar(scalar) => match scalar.typed() {
                Typed::Null => visitor.visit_unit(),
                Typed::Bool(b) => visitor.visit_bool(b),
                Typed::Unsigned(n) => visitor.visit_u64(n),
                Typed::Signed(n) => visitor.visit_i64(n),
                Typed::Float(n) => visitor.visit_f64(n),
                Typed::Text(text) => visitor.visit_borrowed_str(text),
            },
            Value::List(items) => visitor.visit_seq(Items { rest: items.iter(), aside: self.aside }),
            Value::Map(entries) => {
                visitor.visit_map(Entries { rest: entries.iter(), value: None, aside: self.aside, extensions: true })
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.node.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    /// Numbers of netcore's types are text with a unit in a plan.
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        match quantity::number(name, self)? {
            Some(number) => visitor.visit_newtype_struct(IntoDeserializer::<Error>::into_deserializer(number)),
            None => visitor.visit_newtype_struct(self),
        }
    }

    /// A number or a boolean in the place of text is text as written (`label: 1.10`).
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.text() {
            Some(text) => visitor.visit_borrowed_str(text),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if let Some(text) = self.node.text() {
            return visitor.visit_enum(text.into_deserializer());
        }
        let swept = if matches!(self.node.value, Value::List(_)) { format!("; {SWEPT}") } else { String::new() };
        Err(Error::new("expected one word here".to_owned(), format!("one of {}{swept}", variants.join(", "))))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        // A visitor would take a list's values for the fields in their order.
        if matches!(self.node.value, Value::List(_)) {
            return Err(Error::new(
                "expected a map, found a list".to_owned(),
                "write `key: value`, without `-`".to_owned(),
            ));
        }
        self.map(visitor, true)
    }

    /// A map by names, in which `x-…` is a name like any other.
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.map(visitor, false)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple tuple_struct
        identifier ignored_any
    }
}

struct Items<'a, 'b> {
    rest: std::slice::Iter<'a, Node>,
    aside: &'b HashSet<usize>,
}

impl<'a> SeqAccess<'a> for Items<'a, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let aside = self.aside;
        let Some(node) = self.rest.find(|n| !aside.contains(&identity(*n))) else { return Ok(None) };
        seed.deserialize(Reader { node, aside }).map(Some).map_err(|e| e.or_at(node.span, identity(node)))
    }
}

struct Entries<'a, 'b> {
    rest: std::slice::Iter<'a, Entry>,
    value: Option<&'a Entry>,
    aside: &'b HashSet<usize>,
    /// Whether to ignore `x-…` keys.
    extensions: bool,
}

impl<'a> MapAccess<'a> for Entries<'a, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let (aside, extensions) = (self.aside, self.extensions);
        let Some(entry) = self.rest.find(|e| !(aside.contains(&identity(*e)) || extensions && e.key.starts_with("x-")))
        else {
            return Ok(None);
        };
        self.value = Some(entry);
        let key: de::value::BorrowedStrDeserializer<'a, Error> = de::value::BorrowedStrDeserializer::new(&entry.key);
        seed.deserialize(key).map(Some).map_err(|e| e.or_at(entry.key_span, identity(entry)))
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Some(entry) = self.value.take() else {
            return Err(de::Error::custom("a value was asked for before its key"));
        };
        seed.deserialize(Reader { node: &entry.value, aside: self.aside }).map_err(|mut e| {
            if e.at.is_none() && matches!(entry.value.value, Value::List(_)) {
                e.help = e.help.replace("{streams: [1, 4]}", &format!("{{{}: […, …]}}", entry.key));
            }
            // An empty value has no place: point at the key.
            let span = if entry.value.span.start == entry.value.span.end { entry.key_span } else { entry.value.span };
            e.or_at(span, identity(entry))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::diagnostics::Sources;
    use super::super::tree::parse;
    use super::*;
    use crate::plan::diagnostics::Format;
    use std::collections::BTreeMap;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Inner {
        count: Option<u32>,
        on: Option<bool>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        Forward,
        Reverse,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        name: String,
        #[serde(default)]
        word: Option<Word>,
        #[serde(default)]
        inner: BTreeMap<String, Inner>,
        #[serde(default)]
        list: Vec<u32>,
    }

    fn read(text: &str) -> (Option<Outer>, Diagnostics) {
        let mut sources = Sources::default();
        let source = sources.add("t.yaml", text);
        let mut out = Diagnostics::new(sources);
        let node = parse(source, &mut out).unwrap();
        let value = decode(&node, &mut out);
        (value, out)
    }

    #[test]
    fn text_stays_as_written_and_extensions_are_passed_over() {
        let (value, out) = read("name: 1.10\nx-note: [1, {}]\nword: reverse\ninner: {x-a: {count: 3}}\n");
        assert!(!out.has_errors(), "{}", out.render(Format::Human));
        let value = value.unwrap();
        assert_eq!((value.name.as_str(), value.word), ("1.10", Some(Word::Reverse)));
        assert_eq!(value.inner["x-a"].count, Some(3));
    }

    #[test]
    fn every_mistake_is_found_at_its_word() {
        let (value, out) = read(
            "name: n\nwrod: forward\nword: foward\ninner:\n  a: {cuont: 1, on: yes}\n  b: {count: -1}\nlist: [1, x, 3]\n",
        );
        let text = out.render(Format::Human);
        for sentence in [
            "unknown key `wrod`",
            "did you mean `word`?",
            "unknown value `foward`",
            "did you mean `forward`?",
            "unknown key `cuont`",
            "write true",
            "found `-1`",
            "found `x`",
        ] {
            assert!(text.contains(sentence), "{sentence} not in:\n{text}");
        }
        assert_eq!(out.sorted().len(), 6);
        assert!(text.contains("t.yaml:5:7"));
        assert_eq!(value.unwrap().list, [1, 3]);
    }

    #[test]
    fn a_missing_key_is_missing_once_and_a_wrong_one_is_not_missing() {
        let (_, out) = read("list: [1]\n");
        assert!(out.render(Format::Human).contains("`name` is missing"));
        let (_, out) = read("name: [1]\n");
        assert_eq!(out.sorted().len(), 1);
    }

    #[test]
    fn a_sweep_and_a_nested_key_get_the_way_they_are_written() {
        for (text, swept) in [("word: [forward, reverse]", 1), ("inner: {a: {count: [1, 2]}}", 1), ("inner: [1]", 0)] {
            let (_, out) = read(&format!("name: n\n{text}\n"));
            let text = out.render(Format::Human);
            assert_eq!((out.sorted().len(), text.matches("are swept: matrix: {").count()), (1, swept), "{text}");
            assert!(!text.contains("streams") && (!text.contains("word") || text.contains("{word: […, …]}")), "{text}");
        }
        let (_, out) = read("name: n\ninner.a: {count: 1}\n");
        let text = out.render(Format::Human);
        assert!(text.contains("write `inner: {a: …}`"), "{text}");
    }
}
