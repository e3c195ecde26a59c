//! Colours and signs of series. They stay different for people with colour blindness and on a black and white printer.

use super::{
    canvas::{Colour, Sign},
    legend::Key,
};

/// The palette of Okabe and Ito (2008) without yellow, which is hard to see on white. Black comes last.
const COLOURS: [Colour; 7] = [
    Colour(0x00, 0x72, 0xb2),
    Colour(0xd5, 0x5e, 0x00),
    Colour(0x00, 0x9e, 0x73),
    Colour(0xcc, 0x79, 0xa7),
    Colour(0xe6, 0x9f, 0x00),
    Colour(0x56, 0xb4, 0xe9),
    Colour(0x00, 0x00, 0x00),
];

/// Eight signs for seven colours: pairs repeat after 56 series.
const SIGNS: [Sign; 8] =
    [Sign::Circle, Sign::Square, Sign::Up, Sign::Diamond, Sign::Down, Sign::Cross, Sign::Plus, Sign::Ring];

/// The look of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    pub colour: Colour,
    pub sign: Sign,
    /// Solid for the first seven series, then other dashes, since colours repeat.
    pub dash: Option<(f64, f64)>,
}

impl Look {
    /// The look in the legend.
    pub fn key(self) -> Key {
        Key::Series { colour: self.colour, sign: Some(self.sign), dash: self.dash }
    }
}

/// The look of a series by its index.
pub fn look(index: usize) -> Look {
    let dash = match (index / COLOURS.len()) % 4 {
        0 => None,
        1 => Some((6.0, 3.0)),
        2 => Some((2.0, 2.0)),
        _ => Some((10.0, 3.0)),
    };
    Look { colour: COLOURS[index % COLOURS.len()], sign: SIGNS[index % SIGNS.len()], dash }
}

/// Fill colour of a series by its index, with a `share` of its own colour. Fills get paler each time that colours
/// repeat, since filled shapes have neither sign nor dash.
pub fn fill(index: usize, share: f64) -> Colour {
    let again = i32::try_from(index / COLOURS.len()).unwrap_or(i32::MAX);
    look(index).colour.tint(share * 0.5_f64.powi(again))
}

/// A colour for a share from 0 to 1, from dark blue to yellow. Lightness grows evenly, and the scale reads the same
/// with any colour vision (the stops are close to those of "cividis", Nuñez, Anderton and Renslow 2018).
pub fn scale(share: f64) -> Colour {
    const STOPS: [(u8, u8, u8); 9] = [
        (0, 32, 77),
        (0, 52, 110),
        (58, 71, 107),
        (87, 92, 109),
        (112, 113, 115),
        (138, 134, 120),
        (166, 157, 117),
        (201, 186, 103),
        (255, 234, 70),
    ];
    let at = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 8")]
    let low = (at as usize).min(STOPS.len() - 2);
    let rest = at - low as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two bytes")]
    let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * rest).round() as u8;
    let (a, b) = (STOPS[low], STOPS[low + 1]);
    Colour(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

/// Ink or paper, whichever is readable on the colour.
pub fn readable_on(colour: Colour) -> Colour {
    let luminance = 0.299 * f64::from(colour.0) + 0.587 * f64::from(colour.1) + 0.114 * f64::from(colour.2);
    if luminance > 130.0 { Colour::INK } else { Colour::PAPER }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifty_six_series_look_different() {
        for a in 0..56 {
            for b in 0..a {
                assert_ne!(look(a), look(b), "{a} and {b}");
            }
        }
    }

    #[test]
    fn fills_differ_where_colours_repeat() {
        for a in 0..21 {
            for b in 0..a {
                assert_ne!(fill(a, 0.85), fill(b, 0.85), "{a} and {b}");
            }
        }
    }

    #[test]
    fn the_scale_gets_lighter_all_the_way() {
        let light = |c: Colour| 0.299 * f64::from(c.0) + 0.587 * f64::from(c.1) + 0.114 * f64::from(c.2);
        for step in 0..100 {
            assert!(light(scale(f64::from(step + 1) / 100.0)) >= light(scale(f64::from(step) / 100.0)) - 0.6);
        }
    }
}
