//! YAML as a tree that knows the place of each word.
//!
//! Merging, axes and `check --explain` work on this tree, so that an error in a merged test points at the line that wrote
//! the value.

use std::sync::Arc;

use super::source::Span;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
