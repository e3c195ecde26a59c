//! `saturation`: NetPIPE's saturation graph, message size against transfer time, both logarithmic. Beyond the knee the
//! curve is a straight line: larger messages take longer in proportion and gain nothing.

use super::{
    axis::Axis,
    canvas::{Colour, Point as Place},
    drawing::{Drawing, Points},
    figure::Figure,
    layer::Layer,
    legend::Entry,
    options::Options,
    palette::{self, Look},
    quantity::Quantity,
    series::{self, Series},
    spacing::Spacing,
    transfer::{self, Transfers},
};
use crate::error::Error;
use schemas::units::{Unit, human};

/// Share of the largest throughput from which on a size saturates.
const SATURATED: f64 = 0.95;

pub fn draw(options: &Options) -> Result<Drawing, Error> {
    let all = Transfers::read(options)?;
    let mut table = Points::new(&["series", "transfer_time_us", "message_bytes", "n"]);
    for one in &all.own {
        for (place, point) in places(one).iter().zip(&one.points) {
            let number = schemas::columns::number;
            table.rows.push(vec![one.name.clone(), number(place.0), number(place.1), point.n.to_string()]);
        }
    }
    Ok(Drawing::new(figure(options, &all), table, &all.records))
}

/// Time (µs) and size (bytes) of every point.
fn places(series: &Series) -> Vec<Place> {
    series.points.iter().map(|p| (transfer::time_us(p.x, p.y), p.x)).collect()
}

/// The smallest size that saturates.
fn saturation(series: &Series) -> Option<Place> {
    let most = series.points.iter().map(|p| p.y).fold(f64::NEG_INFINITY, f64::max);
    let at = series.points.iter().position(|p| p.y >= SATURATED * most)?;
    places(series).get(at).copied()
}

fn figure(options: &Options, Transfers { records, own: series, scale }: &Transfers) -> Figure {
    let all: Vec<Place> = scale.iter().flat_map(places).collect();
    let x = transfer::axis(records, options, all.iter().map(|p| p.0));
    let (low, high) = series::extent(all.iter().map(|p| p.1));
    let y = Axis::new(Quantity::of_column("message_bytes"), Spacing::Log2, low, high, true);
    let mut layers = Vec::new();
    let mut legend = Vec::new();
    for (index, one) in series.iter().enumerate() {
        let look = palette::look(index);
        let Look { colour, sign, dash } = look;
        layers.push(Layer::Line { points: places(one), colour, weight: 1.0, dash });
        layers.push(Layer::Marks { points: places(one), sign, colour, weight: 1.0 });
        if let Some(knee) = saturation(one) {
            if series.len() == 1 {
                let label = format!("saturation at {}", human(Unit::Bytes, knee.1));
                layers.push(Layer::Rule { at: knee.1, upright: false, label, colour: Colour::MUTED });
            } else {
                layers.push(Layer::Marks { points: vec![knee], sign, colour, weight: 2.0 });
            }
        }
        legend.push(Entry { label: one.name.clone(), key: look.key() });
    }
    let large = if series.len() == 1 { "saturation" } else { "large sign" };
    let notes = vec![
        transfer::explain_points(series, records, options),
        format!("{large}: first size within {} % of the largest throughput", ((1.0 - SATURATED) * 100.0).round()),
        transfer::explain(records, options).to_owned(),
    ];
    Figure { notes, legend, ..Figure::new(options, records, "saturation", x, y, layers) }
}

#[cfg(test)]
mod tests {
    use super::{
        super::series::{Condense, Point},
        *,
    };

    #[test]
    fn saturation_is_the_first_size_near_the_top() {
        let rates = [(64.0, 1e9), (1024.0, 8e9), (4096.0, 9.6e9), (65_536.0, 10e9)];
        let points =
            rates.map(|(x, y)| Point::of(x, &[y], &Condense::of(&Options::default(), "throughput")).unwrap()).to_vec();
        let knee = saturation(&Series { name: String::new(), points }).unwrap();
        assert!((knee.1 - 4096.0).abs() < 1e-9);
        assert!((knee.0 - 4096.0 * 8.0 / 9.6e9 * 1e6).abs() < 1e-9);
    }
}
