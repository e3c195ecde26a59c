//! Text in Markdown, as GitHub renders it. Names, notes and errors come from elsewhere: none of their characters may
//! become markup, a link, HTML or a new cell.

use schemas::text::plain;

/// Escapes text for a paragraph, a heading, an item of a list or a cell of a table. Line breaks become blanks. Only
/// characters that would be markup at their place are escaped, because Markdown is also read as text:
/// `size[message_size=64]` and `latency < 5ms` stay as they are.
pub fn escaped(text: &str) -> String {
    let text: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let text: Vec<char> = plain(&text).chars().collect();
    // Brackets are text unless something links them.
    let links = text.first() == Some(&'[')
        || text.windows(2).any(|pair| matches!(pair, [']', '(' | '[' | ':']) || matches!(pair, ['[', ']']));
    let mut out = String::with_capacity(text.len());
    for (at, &c) in text.iter().enumerate() {
        let before = at.checked_sub(1).map(|i| text[i]);
        let after = text.get(at + 1).copied();
        let beside = |is: fn(char) -> bool| (before.is_some_and(is), after.is_some_and(is));
        let markup = match c {
            '|' | '`' | '*' | '$' => true,
            '\\' => after.is_none_or(|c| c.is_ascii_punctuation()),
            '<' => after.is_some_and(|c| c.is_ascii_alphabetic() || "/!?".contains(c)),
            '&' => after.is_some_and(|c| c.is_ascii_alphanumeric() || c == '#'),
            '_' => beside(char::is_alphanumeric) != (true, true),
            '~' => beside(|c| !c.is_whitespace()) != (false, false),
            '[' | ']' => links,
            // At the beginning of a line.
            '#' | '>' => before.is_none(),
            '+' | '-' | '=' => before.is_none() && after.is_none_or(|c| c.is_whitespace() || "+-=".contains(c)),
            '.' | ')' => after.is_none_or(char::is_whitespace) && at > 0 && text[..at].iter().all(char::is_ascii_digit),
            _ => false,
        };
        if markup {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

    use super::*;
    use crate::table::layout::{self, Column};

    const GITHUB: Options = Options::ENABLE_TABLES
        .union(Options::ENABLE_FOOTNOTES)
        .union(Options::ENABLE_STRIKETHROUGH)
        .union(Options::ENABLE_TASKLISTS)
        .union(Options::ENABLE_MATH)
        .union(Options::ENABLE_GFM);

    /// The text of a document, and whether anything in it is more than text, paragraphs and tables.
    fn read(markdown: &str) -> (Vec<String>, Vec<String>) {
        let (mut texts, mut others) = (vec![String::new()], Vec::new());
        for event in Parser::new_ext(markdown, GITHUB) {
            match event {
                Event::Text(text) => texts.last_mut().unwrap().push_str(&text),
                Event::End(TagEnd::TableCell) => texts.push(String::new()),
                Event::Start(Tag::Paragraph | Tag::Table(_) | Tag::TableHead | Tag::TableRow | Tag::TableCell)
                | Event::End(_) => {}
                other => others.push(format!("{other:?}")),
            }
        }
        texts.pop_if(|last| last.is_empty());
        (texts, others)
    }

    #[test]
    fn foreign_text_never_becomes_markup() {
        for text in [
            "<script>alert(1)</script>",
            "a|b",
            "back\\|slash",
            "back\\",
            "*bold* **bold** __bold__ _it_",
            "`code`",
            "[link](http://x)",
            "[x]: http://y",
            "[ ] task",
            "![i](y)",
            "# heading",
            "- item",
            "1. item",
            "12) item",
            "> quote",
            "---",
            "===",
            "~~gone~~",
            "&lt;",
            "a\nb",
            "$x$ and $y$",
            "latency.p99 < 5ms",
            "size[message_size=64]",
            "snake_case_name",
            "~",
        ] {
            let shown = text.replace('\n', " ");
            assert_eq!(read(&escaped(text)), (vec![shown.clone()], Vec::new()), "{text}");
            let mut table = Vec::new();
            layout::markdown(&[Column::of("c", false, &[text], |t| (*t).to_owned())], &mut table).unwrap();
            assert_eq!(read(&String::from_utf8(table).unwrap()), (vec!["c".to_owned(), shown], Vec::new()), "{text}");
        }
    }

    #[test]
    fn plain_text_stays_readable() {
        for text in
            ["size[message_size=65536]", "latency.p99 < 5ms", "−5.2 % (−6.0 … −4.3)", "a & b", "~", "-5", "11.3 µs"]
        {
            assert_eq!(escaped(text), text);
        }
    }

    proptest! {
        #[test]
        fn any_text_comes_back(text in "[ a1\\\\|`*_~<>&#\\[\\]()!.:+=$^{}-]{0,12}") {
            let text = text.trim();
            prop_assume!(!text.is_empty());
            // The begins of commands of CI systems, `##[`, are shown by their numbers.
            prop_assert_eq!(read(&escaped(text)), (vec![plain(text)], Vec::new()));
        }
    }
}
