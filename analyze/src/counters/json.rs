//! JSON: every number by its path. Objects in arrays go by their `ifname`, `name` or `id`.
//!
//! `serde_json` checks the document. A small scanner then reads it again, because the place of each number is needed
//! and a parsed value has lost it.

use super::{Bits, Format, Kind, builder::Builder, lines};
use crate::error::ParseError;
use std::{borrow::Cow, rc::Rc};

/// Members that name their object.
const NAMES: &[&str] = &["ifname", "name", "id"];

/// Reads every number.
pub fn read(b: &mut Builder<'_>, format: Format) -> Result<(), ParseError> {
    serde_json::from_str::<serde_json::Value>(b.text).map_err(|e| ParseError::new(e.line(), e.to_string()))?;
    let mut scanner = Scanner { text: b.text, at: 0 };
    let root = scanner.node().ok_or_else(|| ParseError::new(1, "the document is not JSON"))?;
    let source = b.source.clone();
    Walk { b, format, source }.node(&root, &mut String::new())
}

/// A document with the places of its numbers.
enum Node<'a> {
    Number(&'a str),
    Text(&'a str),
    Other,
    Array(Vec<Node<'a>>),
    Object(Vec<(&'a str, Node<'a>)>),
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn peek(&mut self) -> Option<u8> {
        while self.text.as_bytes().get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next value. The document is checked already: `None` means that the two readers disagree.
    fn node(&mut self) -> Option<Node<'a>> {
        match self.peek()? {
            b'{' => {
                self.at += 1;
                let mut members = Vec::new();
                while self.peek()? != b'}' {
                    if self.peek()? == b',' {
                        self.at += 1;
                        continue;
                    }
                    let key = self.string()?;
                    (self.peek()? == b':').then(|| self.at += 1)?;
                    members.push((key, self.node()?));
                }
                self.at += 1;
                Some(Node::Object(members))
            }
            b'[' => {
                self.at += 1;
                let mut items = Vec::new();
                while self.peek()? != b']' {
                    if self.peek()? == b',' {
                        self.at += 1;
                        continue;
                    }
                    items.push(self.node()?);
                }
                self.at += 1;
                Some(Node::Array(items))
            }
            b'"' => Some(Node::Text(self.string()?)),
            _ => {
                let start = self.at;
                let ends = |c: u8| c.is_ascii_whitespace() || matches!(c, b',' | b']' | b'}' | b':');
                while self.text.as_bytes().get(self.at).is_some_and(|c| !ends(*c)) {
                    self.at += 1;
                }
                let word = self.text.get(start..self.at).filter(|w| !w.is_empty())?;
                Some(if word.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
                    Node::Number(word)
                } else {
                    Node::Other
                })
            }
        }
    }

    /// A string as it is written, without quotes.
    fn string(&mut self) -> Option<&'a str> {
        (self.peek()? == b'"').then_some(())?;
        let start = self.at + 1;
        let mut at = start;
        loop {
            match self.text.as_bytes().get(at)? {
                b'"' => break,
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
        self.at = at + 1;
        self.text.get(start..at)
    }
}

struct Walk<'b, 'a> {
    b: &'b mut Builder<'a>,
    format: Format,
    source: Rc<str>,
}

impl<'a> Walk<'_, 'a> {
    fn node(&mut self, node: &Node<'a>, path: &mut String) -> Result<(), ParseError> {
        match node {
            Node::Number(digits) => self.number(digits, path),
            Node::Text(_) | Node::Other => Ok(()),
            Node::Object(members) => {
                let nstat = self.format == Format::NstatJson;
                for (key, member) in members {
                    let len = path.len();
                    // nstat's outer object (`kernel`) does not belong to the keys.
                    if !(nstat && path.is_empty() && matches!(member, Node::Object(_))) {
                        push_step(path, &unescaped(key));
                    }
                    self.node(member, path)?;
                    path.truncate(len);
                }
                Ok(())
            }
            Node::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let len = path.len();
                    let outer = self.source.clone();
                    match name_of(item) {
                        // Each interface of `ip` and `ethtool` is a source.
                        Some(name) if path.is_empty() && self.is_interfaces() => {
                            self.source = self.b.interface(&name);
                        }
                        Some(name) => push_step(path, &name),
                        None => push_step(path, &index.to_string()),
                    }
                    self.node(item, path)?;
                    path.truncate(len);
                    self.source = outer;
                }
                Ok(())
            }
        }
    }

    fn is_interfaces(&self) -> bool {
        matches!(self.format, Format::IpJson | Format::EthtoolJson)
    }

    fn number(&mut self, digits: &'a str, path: &str) -> Result<(), ParseError> {
        let kind = match self.format {
            // nstat reads 64 bits and prints 32 of them as JSON. Its text form has all 64.
            Format::NstatJson => match lines::kind(path) {
                Kind::Counter(_) => Kind::Counter(Bits::ThirtyTwo),
                level => level,
            },
            Format::IpJson if path.starts_with("stats64.") => Kind::Counter(Bits::SixtyFour),
            Format::IpJson if path.starts_with("stats.") => Kind::Counter(Bits::ThirtyTwo),
            Format::IpJson => Kind::Gauge,
            Format::EthtoolJson => Kind::Counter(Bits::Unknown),
            _ => Kind::Number,
        };
        self.b.decimal(&self.source, None, path, digits, kind)
    }
}

fn push_step(path: &mut String, step: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(step);
}

fn name_of<'a>(node: &Node<'a>) -> Option<Cow<'a, str>> {
    let Node::Object(members) = node else { return None };
    NAMES.iter().find_map(|wanted| {
        members.iter().find(|(key, _)| key == wanted).and_then(|(_, value)| match value {
            Node::Text(text) => Some(unescaped(text)),
            Node::Number(digits) => Some(Cow::Borrowed(*digits)),
            _ => None,
        })
    })
}

/// The text of a string, without escapes.
fn unescaped(raw: &str) -> Cow<'_, str> {
    if !raw.contains('\\') {
        return Cow::Borrowed(raw);
    }
    serde_json::from_str::<String>(&format!("\"{raw}\"")).map_or(Cow::Borrowed(raw), Cow::Owned)
}
