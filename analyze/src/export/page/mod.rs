//! A page for people: blocks, written as Markdown that GitHub renders or as one HTML file.

mod html;
mod markdown;

pub use markdown::part;
use schemas::words::Verdict;

use crate::survey;
use crate::table::layout::Column;

/// The widest table of pairs, characters.
const WIDEST_TABLE: usize = 120;

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

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    Link {
        text: String,
        /// Relative, as it stands in the page.
        to: String,
    },
    /// A word that judges.
    Word(Tone, String),
    /// A small drawing beside the words that say the same; HTML only.
    Drawing(String),
}

impl Piece {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub fn link(text: impl Into<String>, to: impl Into<String>) -> Self {
        Self::Link { text: text.into(), to: to.into() }
    }
}

pub type Line = Vec<Piece>;

/// An item of a list, with those below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// The target of links to it; may be empty.
    pub id: String,
    pub line: Line,
    pub below: Vec<Item>,
}

/// A row of a grid.
pub struct Row {
    /// The target of links to it; may be empty.
    pub id: String,
    /// A cell per column; the first names the row.
    pub cells: Vec<Line>,
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
    Line(Line),
    Items(Vec<Item>),
    /// A table whose cells have links and drawings.
    Grid {
        about: String,
        /// Titles, and whether the cells are numbers.
        columns: Vec<(&'static str, bool)>,
        rows: Vec<Row>,
        /// Whether [`Block::Search`] chooses among its rows.
        searched: bool,
    },
    /// A field that leaves only the rows with its words, where scripts run. Without them the page is complete.
    Search,
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

/// A survey: its answer, the table of its pairs, and the facts behind it.
pub fn survey(of: &survey::Text<'_>) -> Vec<Block> {
    let list = |lines: Vec<String>| (!lines.is_empty()).then_some(Block::List(lines));
    let table = Block::Table { about: of.title(), columns: of.columns(Some(WIDEST_TABLE)) };
    [Some(Block::Heading(of.title())), list(of.answer()), Some(table), list(of.facts())].into_iter().flatten().collect()
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
                Block::Line(vec![Piece::link(text(), "a.html"), Piece::Word(Tone::Bad, text())]),
                Block::Items(vec![Item {
                    below: vec![Item::default()],
                    line: vec![Piece::Text(text())],
                    ..Item::default()
                }]),
                Block::Grid {
                    about: text(),
                    columns: vec![("series", false)],
                    rows: vec![Row { id: String::new(), cells: vec![vec![Piece::Text(text())]] }],
                    searched: true,
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
        assert_eq!(text.matches("&lt;script&gt;").count(), 22, "each place once, the title twice");
        for (open, close) in [("<div", "</div>"), ("<table", "</table>"), ("<details", "</details>"), ("<ul", "</ul>")]
        {
            assert_eq!(text.matches(open).count(), text.matches(close).count(), "{open}");
        }
        assert!(!text.contains("http:") && !text.contains("https:"), "nothing is fetched from elsewhere");
    }
}
