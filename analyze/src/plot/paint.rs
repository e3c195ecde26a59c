//! Paints a canvas as PNG or SVG: one walk over the shapes, through plotters' bitmap and SVG backends.
//!
//! Both backends count in whole pixels. So the picture is painted larger, and then averaged down (PNG: smooth edges) or
//! scaled by the view box (SVG: positions to a quarter of a pixel).

use super::{
    canvas::{Anchor, Canvas, Colour, Point, Shape, Sign, Text},
    font::{self, FAMILIES},
};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind, FontFamily,
    FontStyle,
    text_anchor::{HPos, Pos, VPos},
};
use plotters_bitmap::BitMapBackend;
use plotters_svg::SVGBackend;
use std::convert::Infallible;

/// Painted pixels per pixel of an SVG, in each direction.
const FINE: u32 = 4;

/// Largest picture in pixels, which keeps a typing error from taking gigabytes.
const MAX_PIXELS: u64 = 16_000_000;

/// A PNG with `density` pixels per logical pixel. Its bytes depend on the canvas alone.
pub fn png(canvas: &Canvas, density: f64) -> Result<Vec<u8>, String> {
    let (width, height) = (pixels(canvas.width * density), pixels(canvas.height * density));
    let count = u64::from(width) * u64::from(height);
    if count > MAX_PIXELS {
        return Err(format!("a picture of {width} × {height} pixels is too large: the limit is 16 million pixels"));
    }
    // Two suffice for smooth edges in large pictures, and four would take a gigabyte.
    let side = if count > 2_000_000 { 2 } else { 4 };
    let fine = (width * side, height * side);
    let mut buffer = vec![0xff; fine.0 as usize * fine.1 as usize * 3];
    {
        let mut backend = BitMapBackend::with_buffer(&mut buffer, fine);
        paint(canvas, &mut backend, density * f64::from(side), true).map_err(|e| e.to_string())?;
        backend.present().map_err(|e| e.to_string())?;
    }
    let mut small = Vec::with_capacity(width as usize * height as usize * 3);
    average(&buffer, fine.0 as usize, side, &mut small);
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Best);
    encoder.set_adaptive_filter(png::AdaptiveFilterType::Adaptive);
    let mut writer = encoder.write_header().map_err(|e| e.to_string())?;
    writer.write_image_data(&small).map_err(|e| e.to_string())?;
    writer.finish().map_err(|e| e.to_string())?;
    Ok(bytes)
}

/// Averages squares of `side` × `side` pixels.
fn average(fine: &[u8], fine_width: usize, side: u32, small: &mut Vec<u8>) {
    let count = side * side;
    let side = side as usize;
    for band in fine.chunks_exact(fine_width * 3 * side) {
        for x in 0..fine_width / side {
            let mut sum = [0_u32; 3];
            for row in band.chunks_exact(fine_width * 3) {
                for pixel in row[x * side * 3..(x + 1) * side * 3].chunks_exact(3) {
                    for (total, value) in sum.iter_mut().zip(pixel) {
                        *total += u32::from(*value);
                    }
                }
            }
            #[expect(clippy::cast_possible_truncation, reason = "a mean of bytes is a byte")]
            small.extend(sum.map(|total| ((total + count / 2) / count) as u8));
        }
    }
}

/// An SVG document. Its bytes depend on the canvas alone.
pub fn svg(canvas: &Canvas) -> Result<String, String> {
    let mut text = String::new();
    let fine = (pixels(canvas.width) * FINE, pixels(canvas.height) * FINE);
    {
        let mut backend = SVGBackend::with_string(&mut text, fine);
        paint(canvas, &mut backend, f64::from(FINE), false).map_err(|e| e.to_string())?;
        backend.present().map_err(|e| e.to_string())?;
    }
    // The backend's size is the fine one: the view box keeps it, and the document gets the wanted size.
    let asked = format!(r#"width="{}" height="{}""#, fine.0 / FINE, fine.1 / FINE);
    Ok(text.replacen(&format!(r#"width="{}" height="{}""#, fine.0, fine.1), &asked, 1))
}

fn pixels(length: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at least 1, and bounded by the caller"
    )]
    let whole = length.round().clamp(1.0, 1e6) as u32;
    whole
}

struct Ink {
    colour: BackendColor,
    width: u32,
}

impl BackendStyle for Ink {
    fn color(&self) -> BackendColor {
        self.colour
    }
    fn stroke_width(&self) -> u32 {
        self.width
    }
}

fn ink(colour: Colour, width: f64) -> Ink {
    Ink { colour: BackendColor { alpha: 1.0, rgb: (colour.0, colour.1, colour.2) }, width: pixels(width) }
}

/// A text for the backends. The SVG backend asks for family and size, the bitmap backend for pixels.
struct Letters<'a> {
    text: &'a Text,
    em: f64,
}

impl BackendTextStyle for Letters<'_> {
    type FontError = Infallible;

    fn color(&self) -> BackendColor {
        ink(self.text.colour, 1.0).colour
    }
    fn size(&self) -> f64 {
        // The SVG backend divides by this number to get the em.
        self.em * 1.24
    }
    fn style(&self) -> FontStyle {
        if self.text.bold { FontStyle::Bold } else { FontStyle::Normal }
    }
    fn anchor(&self) -> Pos {
        let horizontal = match self.text.anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        Pos::new(horizontal, VPos::Top)
    }
    fn family(&self) -> FontFamily<'_> {
        FontFamily::Name(FAMILIES)
    }
    fn layout_box(&self, text: &str) -> Result<((i32, i32), (i32, i32)), Infallible> {
        let width = font::Metrics::font(self.em).width(text, self.em);
        Ok(((0, 0), (whole(width), whole(self.em))))
    }
    fn draw<E, F: FnMut(i32, i32, BackendColor) -> Result<(), E>>(
        &self,
        text: &str,
        (left, top): BackendCoord,
        mut draw: F,
    ) -> Result<Result<(), E>, Infallible> {
        let base = top + whole(self.em * ASCENT);
        let mut result = Ok(());
        font::rasterise(text, self.em, self.text.bold, |x, y, coverage| {
            if result.is_ok() {
                result = draw(left + x, base + y, BackendColor { alpha: coverage, ..self.color() });
            }
        });
        Ok(result)
    }
}

/// Distance from the top to the base line, in em: the SVG backend moves texts down by it.
const ASCENT: f64 = 0.76;

fn whole(value: f64) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "clamped to what a picture can be")]
    let whole = value.round().clamp(-1e8, 1e8) as i32;
    whole
}

fn paint<B: DrawingBackend>(
    canvas: &Canvas,
    backend: &mut B,
    zoom: f64,
    bitmap: bool,
) -> Result<(), DrawingErrorKind<B::ErrorType>> {
    let (width, height) = backend.get_size();
    backend.draw_rect((0, 0), (whole(f64::from(width)), whole(f64::from(height))), &ink(Colour::PAPER, 1.0), true)?;
    let at = |p: Point| (whole(p.0 * zoom), whole(p.1 * zoom));
    for shape in &canvas.shapes {
        match shape {
            Shape::Line { points, width, colour } => {
                stroke(backend, points.iter().copied().map(at).collect(), width * zoom, *colour, bitmap)?;
            }
            Shape::Area { points, colour } => {
                backend.fill_polygon(points.iter().copied().map(at), &ink(*colour, 1.0))?;
            }
            Shape::Mark { at: centre, radius, sign, colour } => {
                mark(backend, at(*centre), radius * zoom, *sign, *colour, bitmap)?;
            }
            Shape::Text(text) => {
                let em = text.em * zoom;
                let (x, y) = at(text.at);
                backend.draw_text(&text.text, &Letters { text, em }, (x, y - whole(em * ASCENT)))?;
            }
        }
    }
    Ok(())
}

/// Draws a line. The bitmap backend turns a path into one polygon, with holes where it crosses itself (as a noisy time
/// series does). So each piece is a rectangle there, and each joint a disc.
fn stroke<B: DrawingBackend>(
    backend: &mut B,
    points: Vec<BackendCoord>,
    width: f64,
    colour: Colour,
    bitmap: bool,
) -> Result<(), DrawingErrorKind<B::ErrorType>> {
    let ink = ink(colour, width);
    if !bitmap {
        return backend.draw_path(points, &ink);
    }
    let half = width / 2.0;
    for pair in points.windows(2) {
        let (from, to) = ((f64::from(pair[0].0), f64::from(pair[0].1)), (f64::from(pair[1].0), f64::from(pair[1].1)));
        let length = (to.0 - from.0).hypot(to.1 - from.1);
        if length == 0.0 {
            continue;
        }
        let (nx, ny) = ((to.1 - from.1) / length * half, (from.0 - to.0) / length * half);
        let corners =
            [(from.0 + nx, from.1 + ny), (to.0 + nx, to.1 + ny), (to.0 - nx, to.1 - ny), (from.0 - nx, from.1 - ny)];
        backend.fill_polygon(corners.map(|(x, y)| (whole(x), whole(y))), &ink)?;
    }
    if half >= 2.0 && points.len() > 2 {
        for joint in &points[1..points.len() - 1] {
            backend.draw_circle(*joint, pixels(half), &ink, true)?;
        }
    }
    Ok(())
}

fn mark<B: DrawingBackend>(
    backend: &mut B,
    (x, y): BackendCoord,
    radius: f64,
    sign: Sign,
    colour: Colour,
    bitmap: bool,
) -> Result<(), DrawingErrorKind<B::ErrorType>> {
    let fill = ink(colour, 1.0);
    let polygon = |corners: &[(f64, f64)]| -> Vec<BackendCoord> {
        corners.iter().map(|(dx, dy)| (x + whole(dx * radius), y + whole(dy * radius))).collect()
    };
    match sign {
        Sign::Circle => backend.draw_circle((x, y), pixels(radius), &fill, true),
        Sign::Ring => {
            backend.draw_circle((x, y), pixels(radius), &fill, true)?;
            backend.draw_circle((x, y), pixels(radius * 0.55), &ink(Colour::PAPER, 1.0), true)
        }
        Sign::Square => backend.fill_polygon(polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]), &fill),
        Sign::Up => backend.fill_polygon(polygon(&[(0.0, -1.15), (1.05, 0.8), (-1.05, 0.8)]), &fill),
        Sign::Down => backend.fill_polygon(polygon(&[(0.0, 1.15), (1.05, -0.8), (-1.05, -0.8)]), &fill),
        Sign::Diamond => backend.fill_polygon(polygon(&[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)]), &fill),
        Sign::Cross | Sign::Plus => {
            let reach = if sign == Sign::Cross { 0.9 } else { 1.15 };
            let arms = if sign == Sign::Cross {
                [[(-reach, -reach), (reach, reach)], [(-reach, reach), (reach, -reach)]]
            } else {
                [[(-reach, 0.0), (reach, 0.0)], [(0.0, -reach), (0.0, reach)]]
            };
            for arm in arms {
                stroke(backend, polygon(&arm), radius * 0.6, colour, bitmap)?;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::font::Metrics;
    use super::*;

    fn sample() -> Canvas {
        let mut canvas = Canvas::new(80.0, 40.0, Metrics::font(12.0));
        canvas.line(vec![(5.0, 35.0), (40.0, 5.0), (75.0, 35.0)], 2.0, Colour(200, 0, 0));
        canvas.mark((40.0, 20.0), 4.0, Sign::Diamond, Colour(0, 0, 200));
        canvas.text((40.0, 38.0), Anchor::Middle, 12.0, Colour::INK, "µ < ½ & \"x\"");
        canvas
    }

    fn decoded(bytes: &[u8]) -> (u32, u32, Vec<u8>) {
        let mut reader = png::Decoder::new(bytes).read_info().expect("a PNG");
        let mut pixels = vec![0; reader.output_buffer_size()];
        let info = reader.next_frame(&mut pixels).expect("a frame");
        (info.width, info.height, pixels)
    }

    #[test]
    fn the_same_canvas_gives_the_same_bytes() {
        assert_eq!(png(&sample(), 1.0).unwrap(), png(&sample(), 1.0).unwrap());
        assert_eq!(svg(&sample()).unwrap(), svg(&sample()).unwrap());
    }

    #[test]
    fn the_colours_arrive_where_they_were_put() {
        let (width, height, pixels) = decoded(&png(&sample(), 2.0).unwrap());
        assert_eq!((width, height), (160, 80));
        let at = |x: usize, y: usize| &pixels[(y * 160 + x) * 3..(y * 160 + x) * 3 + 3];
        assert_eq!(at(80, 40), [0, 0, 200]);
        assert_eq!(at(1, 1), [255, 255, 255]);
        assert_eq!(at(80, 11), [200, 0, 0]);
    }

    #[test]
    fn svg_is_escaped_and_has_the_size_asked_for() {
        let text = svg(&sample()).unwrap();
        assert!(text.starts_with(r#"<svg width="80" height="40" viewBox="0 0 320 160""#), "{text}");
        assert!(text.contains("µ &lt; ½ &amp; &quot;x&quot;"));
        assert!(text.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn control_characters_of_a_name_are_shown() {
        let mut canvas = Canvas::new(80.0, 40.0, Metrics::font(12.0));
        canvas.text((40.0, 38.0), Anchor::Middle, 12.0, Colour::INK, "a\u{1b}[31m\0");
        assert!(svg(&canvas).unwrap().contains(r"a\u{1b}[31m\u{0}"));
    }

    #[test]
    fn an_absurd_size_is_refused() {
        let canvas = Canvas::new(1e5, 1e5, Metrics::font(12.0));
        assert!(png(&canvas, 1.0).unwrap_err().contains("too large"));
    }
}
