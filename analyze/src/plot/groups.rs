//! Values by name and series: what pictures with names along an axis show. The names stand on the vertical axis, where
//! long ones can be read.

use super::{
    Options,
    legend::{Entry, Key},
    quantity::Quantity,
    reading::{Reading, Wanted},
};
use crate::{error::Error, table::InputArgs};

/// The values of one series at one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Index of the name.
    pub name: usize,
    /// Index of the series.
    pub series: usize,
    /// The values.
    pub values: Vec<f64>,
}

/// All groups of an input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Groups {
    /// Along the axis, from the top down.
    pub names: Vec<String>,
    /// In the legend.
    pub series: Vec<String>,
    /// The values.
    pub all: Vec<Group>,
}

/// The rows with a value.
pub fn read(options: &Options, input: &InputArgs, column: &str) -> Result<Reading, Error> {
    let names: Vec<&str> = options.x.as_deref().into_iter().collect();
    let wanted = Wanted {
        numbers: &[column],
        required_texts: &names,
        texts: &["service_demand_unit"],
        along: &names,
        by_case: names.is_empty(),
        ..Wanted::default()
    };
    Reading::new(options, input, &options.selection, &wanted)
}

impl Groups {
    /// By the names in the column `-x` and the series, or where there is none by the series alone.
    #[must_use]
    pub fn of(reading: &Reading, options: &Options, column: &str) -> Self {
        let mut found = Self::default();
        for record in &reading.records {
            let Some(value) = reading.number(record, column) else { continue };
            let (name, series) = match &options.x {
                Some(x) => (Quantity::of_column(x).name(reading.text(record, x)), reading.series(record)),
                None if reading.by.is_empty() => (reading.text(record, "case").to_owned(), String::new()),
                None => (reading.series(record), String::new()),
            };
            let name = index(&mut found.names, name);
            let series = index(&mut found.series, series);
            match found.all.iter_mut().find(|g| g.name == name && g.series == series) {
                Some(group) => group.values.push(value),
                None => found.all.push(Group { name, series, values: vec![value] }),
            }
        }
        found.sort_numbers(reading, options);
        found
    }

    /// Names that are numbers (sizes, streams) stand in their order.
    fn sort_numbers(&mut self, reading: &Reading, options: &Options) {
        let Some(x) = &options.x else { return };
        let mut values: Vec<f64> = Vec::new();
        for text in reading.distinct(x) {
            match text.parse::<f64>() {
                Ok(value) => values.push(value),
                Err(_) => return,
            }
        }
        if values.len() != self.names.len() {
            return;
        }
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
        let place = |old: usize| order.iter().position(|o| *o == old).unwrap_or(old);
        for group in &mut self.all {
            group.name = place(group.name);
        }
        self.names = order.iter().map(|old| self.names[*old].clone()).collect();
    }

    /// The middle of a group along the axis of names, and half its room.
    #[must_use]
    pub fn place(&self, group: &Group) -> (f64, f64) {
        let room = 0.8 / self.series.len().max(1) as f64;
        let first = group.name as f64 - 0.4 + room / 2.0;
        (first + room * group.series as f64, room * 0.42)
    }

    /// The legend, where there is more than one series; `key` is the look of the series with that index.
    #[must_use]
    pub fn legend(&self, key: impl Fn(usize) -> Key) -> Vec<Entry> {
        if self.series.len() < 2 {
            return Vec::new();
        }
        self.series.iter().enumerate().map(|(index, label)| Entry { label: label.clone(), key: key(index) }).collect()
    }

    /// The title of the axis of names.
    #[must_use]
    pub fn title(reading: &Reading, options: &Options) -> String {
        match &options.x {
            Some(x) => Quantity::of_column(x).label,
            None => reading.by.iter().map(|column| Quantity::of_column(column).label).collect::<Vec<_>>().join(", "),
        }
    }
}

fn index(known: &mut Vec<String>, name: String) -> usize {
    known.iter().position(|k| *k == name).unwrap_or_else(|| {
        known.push(name);
        known.len() - 1
    })
}
