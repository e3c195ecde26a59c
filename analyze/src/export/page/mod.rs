//! A page for people: blocks, written as Markdown that GitHub renders or as one HTML file.

mod html;
mod markdown;

pub use markdown::part;
use schemas::words::Verdict;

use crate::table::layout::Column;

/// The quality of the news. It is also said in words: colours are an addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    Good,
    Bad,
    Doubtful,
    #[default]
    Plain,
}

impl Tone {
    pub fn of(verdict: Verdict) -> Self {
        match verdict {
            v if v.is_bad() || v == Verdict::Error => Self::Bad,
            v if v.is_well() => Self::Good,
            _ => Self::Doubtful,
        }
    }
}

pub enum Block {
    /// A heading of the second level.
    Heading(String),
    Paragraph(String),
    /// The one sentence to read if nothing else is.
    Answer {
        tone: Tone,
        text: String,
        /// Its contents; may be empty.
        more: String,
    },
    List(Vec<String>),
    Table {
        /// The table's subject, for readers who cannot see its place on the page.
        about: String,
        columns: Vec<Column>,
    },
    /// Text shown as it is.
    Verbatim(String),
    Picture {
        /// The picture in words, for readers who cannot see it.
        about: String,
        svg: String,
        /// The same picture for narrow screens; HTML only.
        narrow: Option<String>,
    },
    /// Blocks that readers open when they want them.
    Fold {
        about: String,
        blocks: Vec<Block>,
    },
}

pub struct Page {
    pub title: String,
    /// A line under the title: place and time.
    pub origin: String,
    pub blocks: Vec<Block>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "</script><script>alert(1)</script> \"a\" 'b' & | *c*";

    fn hostile(text: &str) -> Page {
        let text = || text.to_owned();
        Page {
            title: text(),
            origin: text(),
            blocks: vec![
                Block::Heading(text()),
                Block::Paragraph(text()),
                Block::Answer { tone: Tone::Bad, text: text(), more: text() },
                Block::List(vec![text(), text()]),
                Block::Table {
                    about: text(),
                    columns: vec![Column { title: text(), right: false, cells: vec![text()] }],
                },
                Block::Verbatim(text()),
                Block::Picture { about: text(), svg: "<svg></svg>\n".into(), narrow: Some("<svg></svg>\n".into()) },
                Block::Fold { about: text(), blocks: vec![Block::List(vec![text()])] },
            ],
        }
    }

    #[test]
    fn foreign_text_never_becomes_a_tag() {
        let text = hostile(HOSTILE).html();
        assert!(!text.contains("<script") && !text.contains("\"a\"") && !text.contains("'b'"), "{text}");
        assert_eq!(text.matches("&lt;script&gt;").count(), 17, "each place once, the title twice");
        for (open, close) in [("<div", "</div>"), ("<table", "</table>"), ("<details", "</details>"), ("<ul", "</ul>")]
        {
            assert_eq!(text.matches(open).count(), text.matches(close).count(), "{open}");
        }
        assert!(!text.contains("http"), "nothing is fetched from elsewhere");
    }
}
