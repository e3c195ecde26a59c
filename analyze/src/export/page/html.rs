//! Pages as HTML: one file that refers to nothing else, for screens of 400 pixels and more, and paper. It has no scripts,
//! but for the one of a search field.

use std::fmt::Write as _;

use schemas::{text::is_hostile, words::Verdict};

use super::{Block, Item, Line, Page, Piece, Row, Tone};
use crate::table::layout::Column;

impl Page {
    pub fn html(&self) -> String {
        let title = escaped(&self.title);
        let has_search = self.blocks.iter().any(|block| matches!(block, Block::Search));
        let script = if has_search { format!("; script-src 'sha256-{SEARCH_HASH}'") } else { String::new() };
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
             base-uri 'none'; form-action 'none'{script}\">\n<title>{title}</title>\n\
             <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
        );
        if !self.origin.is_empty() {
            _ = writeln!(out, "<p class=\"origin\">{}</p>", escaped(&self.origin));
        }
        write(&self.blocks, &mut out);
        out.push_str("</main>\n");
        if has_search {
            _ = writeln!(out, "<script>{SEARCH}</script>");
        }
        out.push_str("</body>\n</html>\n");
        out
    }
}

fn write(blocks: &[Block], out: &mut String) {
    for block in blocks {
        match block {
            Block::Heading(text) => _ = writeln!(out, "<h2>{}</h2>", escaped(text)),
            Block::Paragraph(text) => _ = writeln!(out, "<p>{}</p>", escaped(text)),
            Block::Answer { tone, text, more } => {
                _ = writeln!(out, "<div class=\"answer {}\">\n<p>{}</p>", class(*tone), escaped(text));
                if !more.is_empty() {
                    _ = writeln!(out, "<p class=\"more\">{}</p>", escaped(more));
                }
                out.push_str("</div>\n");
            }
            Block::List(items) => {
                out.push_str("<ul>\n");
                for item in items {
                    _ = writeln!(out, "<li>{}</li>", escaped(item));
                }
                out.push_str("</ul>\n");
            }
            Block::Table { about, columns } => table(about, columns, out),
            Block::Line(pieces) => _ = writeln!(out, "<p>{}</p>", line(pieces)),
            Block::Items(list) => items(list, out),
            Block::Grid { about, columns, rows, searched } => grid(about, columns, rows, *searched, out),
            Block::Search => out.push_str(
                "<p class=\"search\" hidden><label>Search <input type=\"search\" autocomplete=\"off\"></label></p>\n",
            ),
            Block::Verbatim(text) => _ = writeln!(out, "<pre>{}</pre>", escaped(text)),
            Block::Picture { about, svg, narrow } => {
                let about = escaped(about);
                let (wide, narrow) = match narrow {
                    Some(narrow) => (" wide", Some(narrow)),
                    None => ("", None),
                };
                out.push_str("<figure>\n");
                for (class, svg) in [Some((wide, svg)), narrow.map(|svg| (" narrow", svg))].into_iter().flatten() {
                    _ = writeln!(
                        out,
                        "<div class=\"picture{class}\" role=\"img\" aria-label=\"{about}\">\n{svg}</div>"
                    );
                }
                out.push_str("</figure>\n");
            }
            Block::Fold { about, blocks } => {
                _ = writeln!(out, "<details>\n<summary>{}</summary>", escaped(about));
                write(blocks, out);
                out.push_str("</details>\n");
            }
        }
    }
}

fn line(pieces: &Line) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Text(text) => escaped(text),
        Piece::Link { text, to } => format!("<a href=\"{}\">{}</a>", escaped(to), escaped(text)),
        Piece::Word(tone, text) => format!("<span class=\"word {}\">{}</span>", class(*tone), escaped(text)),
        Piece::Drawing(svg) => svg.clone(),
    };
    pieces.iter().map(piece).collect()
}

/// ` id="…"`, where there is one.
fn id(id: &str) -> String {
    if id.is_empty() { String::new() } else { format!(" id=\"{}\"", escaped(id)) }
}

fn items(list: &[Item], out: &mut String) {
    out.push_str("<ul>\n");
    for item in list {
        _ = write!(out, "<li{}>{}", id(&item.id), line(&item.line));
        if !item.below.is_empty() {
            out.push('\n');
            items(&item.below, out);
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ul>\n");
}

fn grid(about: &str, columns: &[(&'static str, bool)], rows: &[Row], searched: bool, out: &mut String) {
    let about = escaped(about);
    let class = if searched { " class=\"searched\"" } else { "" };
    _ = writeln!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{about}\">\n<table{class}>\n<thead>\n<tr>"
    );
    let length = |piece: &Piece| match piece {
        Piece::Text(text) | Piece::Link { text, .. } | Piece::Word(_, text) => text.chars().count(),
        Piece::Drawing(_) => 0,
    };
    let is_short = |i: usize| rows.iter().all(|row| row.cells[i].iter().map(length).sum::<usize>() <= SHORT);
    let classes: Vec<&str> = columns
        .iter()
        .enumerate()
        .map(|(i, (_, right))| match right {
            _ if i == 0 => " class=\"name\"",
            true => " class=\"number\"",
            false if is_short(i) => " class=\"short\"",
            false => "",
        })
        .collect();
    for ((title, _), class) in columns.iter().zip(&classes) {
        _ = writeln!(out, "<th scope=\"col\"{class}>{}</th>", escaped(title));
    }
    out.push_str("</tr>\n</thead>\n<tbody>\n");
    for row in rows {
        _ = write!(out, "<tr{}>", id(&row.id));
        for (i, (cell, class)) in row.cells.iter().zip(&classes).enumerate() {
            let (tag, scope) = if i == 0 { ("th", " scope=\"row\"") } else { ("td", "") };
            _ = write!(out, "<{tag}{scope}{class}>{}</{tag}>", line(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Doubtful => "doubtful",
        Tone::Plain => "plain",
    }
}

/// The tone of a cell in a column of verdicts.
fn tone(column: &Column, cell: &str) -> Tone {
    match cell.parse::<Verdict>() {
        _ if column.title != "verdict" => Tone::Plain,
        Ok(verdict) => Tone::of(verdict),
        Err(_) if cell == "~" => Tone::Good,
        _ => Tone::Doubtful,
    }
}

/// Cells of at most this many characters are not broken.
const SHORT: usize = 28;

/// A table that scrolls by itself where the page is too narrow for it.
fn table(about: &str, columns: &[Column], out: &mut String) {
    let about = escaped(about);
    _ = writeln!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{about}\">\n<table>\n<thead>\n<tr>"
    );
    // The case names the row; a table of verdicts has it in its second column.
    let named = columns.iter().position(|c| c.title == "case").unwrap_or(0);
    for (i, column) in columns.iter().enumerate() {
        let class = match column.right {
            _ if i == named => " class=\"name\"",
            true => " class=\"number\"",
            false => "",
        };
        _ = writeln!(out, "<th scope=\"col\"{class}>{}</th>", escaped(&column.title));
    }
    out.push_str("</tr>\n</thead>\n<tbody>\n");
    let short: Vec<bool> =
        columns.iter().map(|column| column.cells.iter().all(|c| c.chars().count() <= SHORT)).collect();
    for row in 0..columns.first().map_or(0, |c| c.cells.len()) {
        out.push_str("<tr>");
        for (i, column) in columns.iter().enumerate() {
            let cell = &column.cells[row];
            let class = match (column.right, tone(column, cell)) {
                _ if i == named => " class=\"name\"".to_owned(),
                (false, Tone::Plain) if short[i] && !column.title.is_empty() => " class=\"short\"".to_owned(),
                (true, _) if cell.contains(" (") || cell.contains(" ± ") => " class=\"number pair\"".to_owned(),
                (true, _) => " class=\"number\"".to_owned(),
                (_, Tone::Plain) => " class=\"long\"".to_owned(),
                (_, tone) => format!(" class=\"word {}\"", class(tone)),
            };
            let mut cell = escaped(cell);
            if column.right {
                // A value with its interval breaks between them.
                cell = cell.replace(' ', "&nbsp;").replace("&nbsp;(", " (").replace("&nbsp;±", " ±");
            }
            if i == named {
                // Long names break between their keys, and not in a value such as `16 KiB`.
                let whole = cell.replace(' ', "&nbsp;");
                cell = whole
                    .replace(",&nbsp;", ", ")
                    .replace("]&nbsp;", "] ")
                    .replace(',', ",<wbr>")
                    .replace('[', "<wbr>[")
                    .replace('=', "=<wbr>");
            }
            let (tag, scope) = if i == named { ("th", " scope=\"row\"") } else { ("td", "") };
            let _ = write!(out, "<{tag}{scope}{class}>{cell}</{tag}>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

/// Escapes text for an element or a quoted attribute. Characters that a browser obeys or refuses are shown.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if is_hostile(c) && !c.is_whitespace() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// Leaves the rows of searched tables that have all words of the field.
const SEARCH: &str = "
const box = document.querySelector('.search'), field = box.querySelector('input');
box.hidden = false;
field.addEventListener('input', () => {
  const words = field.value.toLowerCase().split(/\\s+/);
  for (const row of document.querySelectorAll('table.searched tbody tr')) {
    const text = (row.closest('.scroll').getAttribute('aria-label') + ' ' + row.textContent).toLowerCase();
    row.hidden = !words.every(word => text.includes(word));
  }
});
";

/// SHA-256 of the script in Base64: browsers run no other.
const SEARCH_HASH: &str = "+wb9dn80PNju32nysibqqRHTUCr9BwsGwIc9Pe3awzE=";

/// Pictures are drawn in dark ink, so that they have a light card in the dark, too.
const STYLE: &str = ":root {
  color-scheme: light dark;
  --paper: #fff; --ink: #1d2126; --faint: #5c6570; --line: #d9dee3; --shade: #f4f6f8;
  --good: #1a7f37; --bad: #c4232d; --doubtful: #8a6100; --plain: #5c6570; --link: #0b5cad;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181d; --ink: #e4e8ec; --faint: #9aa4af; --line: #333b44; --shade: #1d2329;
    --good: #57c26d; --bad: #ff7b78; --doubtful: #e0b03f; --plain: #9aa4af; --link: #7db7f5;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem clamp(0.9rem, 3vw, 2.5rem) 3rem; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 0.3rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 0.6rem; padding-bottom: 0.25rem; border-bottom: 1px solid var(--line); }
p { margin: 0.6rem 0; max-width: 48rem; }
.origin { color: var(--faint); font-size: 0.875rem; max-width: none; }
.answer { margin: 1.1rem 0; padding: 0.35rem 1rem; border-left: 5px solid var(--plain); background: var(--shade); border-radius: 0 6px 6px 0; }
.answer p { font-size: 1.1rem; font-weight: 600; line-height: 1.4; max-width: none; }
.answer .more { font-size: 1rem; font-weight: 400; }
.answer.good { border-color: var(--good); }
.answer.bad { border-color: var(--bad); }
.answer.doubtful { border-color: var(--doubtful); }
ul { margin: 0.5rem 0; padding-left: 1.3rem; max-width: 52rem; }
li { margin: 0.25rem 0; }
li ul { margin: 0.1rem 0; }
a { color: var(--link); }
:target { background: var(--shade); outline: 2px solid var(--plain); }
.search input { font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--plain); border-radius: 6px; padding: 0.2rem 0.5rem; max-width: 100%; }
.spark { display: block; width: 8rem; height: 1.6rem; overflow: visible; }
.spark path { fill: none; stroke: currentColor; stroke-width: 1.2; vector-effect: non-scaling-stroke; }
.spark .good { stroke: var(--good); }
.spark .bad { stroke: var(--bad); }
.spark .doubtful { stroke: var(--doubtful); }
.spark .plain { stroke: var(--plain); }
.scroll { overflow-x: auto; margin: 0.6rem 0; }
.scroll:focus-visible { outline: 2px solid var(--plain); }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { text-align: left; vertical-align: top; padding: 0.35rem 1.1rem 0.35rem 0; border-bottom: 1px solid var(--line); }
th:last-child, td:last-child { padding-right: 0; }
thead th { color: var(--faint); font-weight: 600; vertical-align: bottom; white-space: nowrap; }
tbody th { font-weight: 600; }
.name { overflow-wrap: break-word; }
tbody tr:hover { background: var(--shade); }
.number { text-align: right; white-space: nowrap; }
.short { white-space: nowrap; }
.long { min-width: 13rem; }
.word { font-weight: 700; white-space: nowrap; }
.word.good { color: var(--good); }
.word.bad { color: var(--bad); }
.word.doubtful { color: var(--doubtful); }
figure { margin: 1rem 0; }
.picture { background: #fff; border: 1px solid var(--line); border-radius: 8px; padding: 0.5rem; }
.picture svg { display: block; width: 100%; height: auto; }
.narrow { display: none; }
details { margin: 0.9rem 0; border: 1px solid var(--line); border-radius: 8px; padding: 0.1rem 1rem; }
summary { cursor: pointer; font-weight: 600; padding: 0.5rem 0; }
pre { background: var(--shade); padding: 0.8rem 1rem; border-radius: 6px; font: 0.8rem/1.45 ui-monospace, 'DejaVu Sans Mono', monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 1100px) {
  th, td { padding-right: 0.6rem; }
  thead th { white-space: normal; }
  .long { min-width: 11rem; }
}
@media (max-width: 640px) {
  .wide { display: none; }
  .narrow { display: block; }
  h1 { font-size: 1.4rem; }
  .picture { padding: 0.2rem; }
  .pair { white-space: normal; }
  .name { position: sticky; left: 0; max-width: 9.5rem; background: var(--paper); }
}
@media print {
  :root {
    color-scheme: light;
    --paper: #fff; --ink: #000; --faint: #444; --line: #bbb; --shade: #f4f4f4;
    --good: #1a7f37; --bad: #b3151f; --doubtful: #7a5600; --plain: #444; --link: #000;
  }
  @page { margin: 1.6cm; }
  body { font-size: 10pt; }
  main { max-width: none; padding: 0; }
  .scroll { overflow: visible; }
  .name { position: static; max-width: none; min-width: 11rem; }
  table { font-size: 8pt; }
  td.number, thead th { white-space: normal; }
  .long { min-width: 0; }
  th, td { padding-right: 0.5rem; }
  .wide { display: block; }
  .narrow { display: none; }
  h2 { break-after: avoid; }
  figure, tr, .answer { break-inside: avoid; }
  thead { display: table-header-group; }
  details { border: 0; padding: 0; }
  details::details-content { content-visibility: visible; block-size: auto; }
  summary { list-style: none; }
  p, ul { max-width: none; }
}
";

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn cells_break_between_values_and_not_in_them() {
        let column = |title: &str, right, cell: &str| Column { title: title.into(), right, cells: vec![cell.into()] };
        let columns =
            vec![column("case", false, "ping[16 KiB, spin] up"), column("mean", true, "95.7 Mbit/s ± 0.50 %")];
        let page = Page {
            title: "t".into(),
            origin: String::new(),
            blocks: vec![Block::Table { about: "t".into(), columns }],
        };
        let text = page.html();
        assert!(text.contains("ping<wbr>[16&nbsp;KiB,<wbr> spin] up</th>"), "{text}");
        assert!(text.contains("<td class=\"number pair\">95.7&nbsp;Mbit/s ±&nbsp;0.50&nbsp;%</td>"), "{text}");
    }

    #[test]
    fn the_policy_has_the_hash_of_the_script() {
        let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(SEARCH));
        assert_eq!(hash, SEARCH_HASH);
        let page = |blocks| Page { title: "t".into(), origin: String::new(), blocks }.html();
        let with = page(vec![Block::Search]);
        assert!(
            with.contains(&format!("script-src 'sha256-{hash}'"))
                && with.contains(&format!("<script>{SEARCH}</script>"))
        );
        assert!(!page(Vec::new()).contains("script"));
    }
}
