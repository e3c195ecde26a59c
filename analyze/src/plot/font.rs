//! Widths and outlines of texts. The font is DejaVu Sans from the `dejavu` crate, so that pictures do not depend on the
//! machine's fonts. SVG readers may use another font; DejaVu is wide, so texts that fit in it fit in theirs.

use ab_glyph::{Font, FontRef, PxScale, ScaleFont};
use miniz_oxide::inflate::decompress_to_vec_zlib;
use std::sync::OnceLock;
use unicode_width::UnicodeWidthStr;

/// Font families of an SVG, the measured one first.
pub const FAMILIES: &str = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";

/// The parts of the regular and the bold font that are drawn, as build.rs compressed them.
const COMPRESSED: [&[u8]; 2] = [
    include_bytes!(concat!(env!("OUT_DIR"), "/regular.ttf.zlib")),
    include_bytes!(concat!(env!("OUT_DIR"), "/bold.ttf.zlib")),
];

fn face(bold: bool) -> &'static FontRef<'static> {
    static FACES: [OnceLock<FontRef<'static>>; 2] = [const { OnceLock::new() }; 2];
    FACES[usize::from(bold)].get_or_init(|| {
        // The font is compiled in: a failure means a broken build, which every test shows.
        let bytes = decompress_to_vec_zlib(COMPRESSED[usize::from(bold)]).expect("the built-in font is compressed");
        FontRef::try_from_slice(bytes.leak()).expect("the built-in font is a font")
    })
}

/// The scale at which the font's em is `em` pixels (ab_glyph measures from ascent to descent).
fn scale(face: &FontRef<'_>, em: f64) -> PxScale {
    let units = face.units_per_em().unwrap_or(2048.0);
    #[expect(clippy::cast_possible_truncation, reason = "font sizes are small")]
    PxScale::from(em as f32 * face.height_unscaled() / units)
}

/// Text sizes: in pixels of the built-in font, or in cells of a terminal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metrics {
    /// Size of normal text: pixels per em.
    pub em: f64,
    /// Whether the picture is for a terminal. Then a cell is two logical pixels wide and four high (the dots of a
    /// braille character), and all texts have one size.
    pub cells: bool,
}

impl Metrics {
    /// For PNG and SVG.
    pub fn font(em: f64) -> Self {
        Self { em, cells: false }
    }

    /// For a terminal.
    pub fn terminal() -> Self {
        Self { em: 4.0, cells: true }
    }

    /// A font size, as a share of the normal one.
    pub fn size(&self, share: f64) -> f64 {
        if self.cells { self.em } else { self.em * share }
    }

    /// The width of a text at `em` pixels per em.
    pub fn width(&self, text: &str, em: f64) -> f64 {
        if self.cells {
            return 2.0 * text.width() as f64;
        }
        let face = face(false);
        let scaled = face.as_scaled(scale(face, em));
        text.chars().map(|c| f64::from(scaled.h_advance(face.glyph_id(c)))).sum()
    }

    /// The distance between the base lines of two lines of text.
    pub fn line(&self, em: f64) -> f64 {
        if self.cells { 4.0 } else { em * 1.38 }
    }

    /// A small gap: between a tick and its label, between a key and its name.
    pub fn gap(&self) -> f64 {
        if self.cells { 2.0 } else { self.em * 0.45 }
    }

    /// Shortens `text` in its middle to at most `room`: names differ at both ends.
    pub fn shorten(&self, text: &str, em: f64, room: f64) -> String {
        if self.width(text, em) <= room {
            return text.to_owned();
        }
        let chars: Vec<char> = text.chars().collect();
        for keep in (2..chars.len()).rev() {
            let head = keep.div_ceil(2);
            let short: String =
                chars[..head].iter().chain(&['…']).chain(&chars[chars.len() - (keep - head)..]).collect();
            if self.width(&short, em) <= room {
                return short;
            }
        }
        "…".to_owned()
    }

    /// Shortens names so that different ones stay different. Where [`Metrics::shorten`] would make them equal, their
    /// common start and end are shortened instead.
    pub fn shorten_all(&self, names: &[&str], em: f64, room: f64) -> Vec<String> {
        let short: Vec<String> = names.iter().map(|name| self.shorten(name, em, room)).collect();
        let distinct = |names: &mut Vec<&str>| {
            names.sort_unstable();
            names.dedup();
            names.len()
        };
        let mut different = names.to_vec();
        if distinct(&mut different) == distinct(&mut short.iter().map(String::as_str).collect()) {
            return short;
        }
        let chars: Vec<Vec<char>> = different.iter().map(|name| name.chars().collect()).collect();
        let least = chars.iter().map(Vec::len).min().unwrap_or(0);
        let alike = |at: &dyn Fn(&[char], usize) -> char, most: usize| {
            (0..most).take_while(|i| chars.iter().all(|c| at(c, *i) == at(&chars[0], *i))).count()
        };
        let head = alike(&|c, i| c[i], least);
        let tail = alike(&|c, i| c[c.len() - 1 - i], least - head);
        // The part that differs, with as much of both ends as fits.
        let cut = |name: &str, keep: usize| -> String {
            let chars: Vec<char> = name.chars().collect();
            let middle = &chars[head..chars.len() - tail];
            let (first, last) = (keep.div_ceil(2).min(head), (keep / 2).min(tail));
            let gap = |left_out: usize| if left_out > 0 { "…" } else { "" };
            let text = |chars: &[char]| chars.iter().collect::<String>();
            let (begin, end) = (text(&chars[..first]), text(&chars[chars.len() - last..]));
            format!("{begin}{}{}{}{end}", gap(head - first), text(middle), gap(tail - last))
        };
        let fits = |keep: &usize| different.iter().all(|name| self.width(&cut(name, *keep), em) <= room);
        let keep = (0..=2 * head.max(tail)).rev().find(fits).unwrap_or(0);
        let around = names.iter().map(|name| self.shorten(&cut(name, keep), em, room)).collect();
        // Names of several kinds have no common end. What tells swept values apart stands last.
        let last = names.iter().map(|name| self.shorten_start(name, em, room)).collect();
        let count = |names: &Vec<String>| distinct(&mut names.iter().map(String::as_str).collect());
        [short, around, last].into_iter().rev().max_by_key(count).unwrap_or_default()
    }

    /// Keeps as much of the end as there is room for.
    fn shorten_start(&self, text: &str, em: f64, room: f64) -> String {
        if self.width(text, em) <= room {
            return text.to_owned();
        }
        let starts = text.char_indices().map(|(at, _)| format!("…{}", &text[at..]));
        starts.into_iter().find(|short| self.width(short, em) <= room).unwrap_or_else(|| "…".to_owned())
    }

    /// Breaks `text` into lines of at most `room`, between words, but never between a number and its unit.
    pub fn wrap(&self, text: &str, em: f64, room: f64) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        for word in text.split(' ') {
            let is_unit = word.starts_with(|c: char| c.is_alphabetic() || c == '%');
            match words.last_mut().filter(|last| is_unit && last.ends_with(|c: char| c.is_ascii_digit())) {
                Some(number) => {
                    number.push(' ');
                    number.push_str(word);
                }
                None => words.push(word.to_owned()),
            }
        }
        let mut lines: Vec<String> = Vec::new();
        for word in &words {
            match lines.last_mut() {
                Some(line) if self.width(&format!("{line} {word}"), em) <= room => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(self.shorten(word, em, room)),
            }
        }
        lines
    }
}

/// Calls `pixel(x, y, coverage)` for every pixel of a text; `y` counts down from the base line.
pub fn rasterise(text: &str, em: f64, bold: bool, mut pixel: impl FnMut(i32, i32, f64)) {
    let face = face(bold);
    let scale = scale(face, em);
    let scaled = face.as_scaled(scale);
    let mut pen = 0.0_f32;
    for c in text.chars() {
        let glyph = face.glyph_id(c);
        if let Some(outline) = face.outline_glyph(glyph.with_scale_and_position(scale, ab_glyph::point(pen, 0.0))) {
            let bounds = outline.px_bounds();
            outline.draw(|x, y, coverage| {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_possible_wrap,
                    reason = "positions in a picture are small"
                )]
                pixel(bounds.min.x as i32 + x as i32, bounds.min.y as i32 + y as i32, f64::from(coverage.min(1.0)));
            });
        }
        pen += scaled.h_advance(glyph);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_grow_with_text_and_size() {
        let m = Metrics::font(12.0);
        assert!(m.width("mm", 12.0) > m.width("m", 12.0));
        assert!((m.width("abc", 24.0) - 2.0 * m.width("abc", 12.0)).abs() < 1e-3);
        // DejaVu Sans' digits are 1303 of 2048 units wide.
        assert!((m.width("0", 2048.0) - 1303.0).abs() < 1.0);
    }

    #[test]
    fn shortening_keeps_both_ends_and_the_room() {
        let m = Metrics::font(12.0);
        let name = "bulk[message_size=65536,streams=4]";
        let short = m.shorten(name, 12.0, 120.0);
        assert!(m.width(&short, 12.0) <= 120.0 && short.starts_with("bulk") && short.ends_with("4]"), "{short}");
        assert_eq!(m.shorten(name, 12.0, 1e4), name);
        assert_eq!(m.shorten(name, 12.0, 1.0), "…");
    }

    #[test]
    fn a_number_stays_with_its_unit() {
        let m = Metrics::font(12.0);
        let text = "peak 30.4 Gbit/s at 128 KiB";
        for room in 80..400 {
            let lines = m.wrap(text, 12.0, f64::from(room));
            assert_eq!(lines.join(" "), text);
            assert!(!lines.iter().any(|l| l.ends_with(|c: char| c.is_ascii_digit())), "{lines:?}");
        }
    }

    #[test]
    fn names_that_differ_in_the_middle_still_differ_when_shortened() {
        let m = Metrics::font(12.0);
        let names: Vec<String> =
            (8..=11).map(|n| format!("a-long-name-of-a-test-{n}[socket.congestion_control=cubic]")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let short = m.shorten_all(&names, 12.0, 120.0);
        assert!(short[0].starts_with("a-l") && short[0].contains("…8…") && short[3].contains("…11…"), "{short:?}");
        assert!(short.iter().all(|s| m.width(s, 12.0) <= 120.0), "{short:?}");
        assert_eq!(m.shorten_all(&names, 12.0, 1e4), names);
        assert_eq!(m.shorten_all(&names, 12.0, 1.0), ["…"; 4]);
        assert_eq!(m.shorten_all(&["same", "same"], 12.0, 1e4), ["same"; 2]);
        // One name begins the other.
        let short = m.shorten_all(&["a very long name of a case", "a very long name of a case, too"], 12.0, 60.0);
        assert_ne!(short[0], short[1]);
    }

    #[test]
    fn the_font_has_what_labels_need() {
        for c in "µ± ½–…−×→▲ΔΣ³".chars().filter(|c| *c != ' ') {
            assert_ne!(face(false).glyph_id(c).0, 0, "{c}");
        }
    }
}
