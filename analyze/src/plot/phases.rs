//! Warm-up and cool-down in pictures over time.

use super::{layer::Layer, records::Records};
use schemas::words::Phase;

/// A shade for each phase, where x is time.
pub fn shades(records: &Records, x: &str) -> Vec<Layer> {
    let mut found: Vec<(f64, f64, &str)> = Vec::new();
    for record in records.list.iter().filter(|_| x == "start_s") {
        let phase = match records.text(record, "phase").parse() {
            Ok(Phase::Warmup) => "warm-up",
            Ok(Phase::Cooldown) => "cool-down",
            Ok(Phase::Measure) | Err(_) => continue,
        };
        let Some(start) = records.number(record, x) else { continue };
        let end = start + records.number(record, "elapsed_s").unwrap_or(0.0);
        match found.iter_mut().find(|p| p.2 == phase) {
            Some(known) => (known.0, known.1) = (known.0.min(start), known.1.max(end)),
            None => found.push((start, end, phase)),
        }
    }
    found.into_iter().map(|(from, to, label)| Layer::Shade { from, to, label: label.to_owned() }).collect()
}

/// Removes the names, where they stand elsewhere.
pub fn without_names(layers: &mut [Layer]) {
    for layer in layers {
        if let Layer::Shade { label, .. } = layer {
            label.clear();
        }
    }
}

/// A note that names the shaded phases: their names may not fit into them.
pub fn note(layers: &[Layer]) -> Option<String> {
    let names = layers.iter().filter_map(|layer| match layer {
        Layer::Shade { label, .. } => Some(label.as_str()),
        _ => None,
    });
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| format!("shaded: {}", names.join(" and ")))
}
