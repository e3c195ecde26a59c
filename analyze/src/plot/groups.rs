//! Values by name and series, for pictures with names along an axis. Names stand on the vertical axis, which has room
//! for long ones.

use super::{
    choice::Wanted,
    legend::{Entry, Key},
    options::Options,
    records::{Columns, Records, TELLING},
};
use crate::error::Error;

/// The largest number of rows. On the largest page more would touch.
const MOST: usize = 100;

/// The values of one series at one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub name: usize,
    pub series: usize,
    pub values: Vec<f64>,
}

#[derive(Debug, Default)]
pub struct Groups {
    pub records: Records,
    /// From the top down.
    pub names: Vec<String>,
    pub series: Vec<String>,
    pub all: Vec<Group>,
}

/// The groups of the input, and those of `--same-scale`, for the options' metric.
pub fn read(options: &Options) -> Result<(Groups, Option<Groups>), Error> {
    let names: Vec<Wanted<'_>> = options.x.as_deref().map(Wanted::Column).into_iter().collect();
    let (own, others) = options.with_same_scale(|input, own: Option<&Groups>| {
        let metric = options.y.as_deref().or(own.map(|own| own.records.metric.as_str()));
        let columns = Columns {
            metric: Wanted::of(metric),
            axes: &names,
            texts: TELLING,
            by_case: names.is_empty(),
            ..Columns::default()
        };
        let records = Records::new(options, input, &options.selection, &columns)?;
        Ok(Groups::of(records))
    })?;
    own.records.nothing_to_draw(own.all.is_empty(), options, &[options.y.as_deref().unwrap_or("a headline metric")])?;
    let rows = own.names.len() * own.series.len();
    if rows > MOST {
        return Err(Error::Usage(format!(
            "{rows} rows do not fit on a page: at most {MOST} do. Choose with --test or --where, or draw a `sweep`"
        )));
    }
    Ok((own, others))
}

impl Groups {
    /// Groups by the names in the column `-x` and by series; without `-x` by series alone.
    fn of(records: Records) -> Self {
        let mut found = Self::default();
        for record in &records.list {
            let Some(value) = records.number(record, &records.metric) else { continue };
            let (name, series) = match records.axes.first() {
                Some(x) => (records.quantity(x).name(records.text(record, x)), records.series(record)),
                None if records.by.is_empty() => {
                    (records.labels.get(records.text(record, "case")).to_owned(), String::new())
                }
                None => (records.series(record), String::new()),
            };
            let name = index(&mut found.names, name);
            let series = index(&mut found.series, series);
            match found.all.iter_mut().find(|g| g.name == name && g.series == series) {
                Some(group) => group.values.push(value),
                None => found.all.push(Group { name, series, values: vec![value] }),
            }
        }
        found.sort_numbers(&records);
        Self { records, ..found }
    }

    /// Sorts names that are numbers (sizes, streams).
    fn sort_numbers(&mut self, records: &Records) {
        let Some(x) = records.axes.first() else { return };
        let mut values: Vec<f64> = Vec::new();
        for text in records.distinct(x) {
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

    /// Gives the groups of several metrics the same names and series: those of the first, then what it lacks.
    pub fn align(all: &mut [&mut Self]) {
        let (mut names, mut series) = (Vec::new(), Vec::new());
        for groups in &*all {
            groups.names.iter().for_each(|name| _ = index(&mut names, name.clone()));
            groups.series.iter().for_each(|one| _ = index(&mut series, one.clone()));
        }
        for groups in all {
            for group in &mut groups.all {
                group.name = index(&mut names, groups.names[group.name].clone());
                group.series = index(&mut series, groups.series[group.series].clone());
            }
            groups.names.clone_from(&names);
            groups.series.clone_from(&series);
        }
    }

    /// The middle of a group along the axis of names, and half its width.
    pub fn place(&self, group: &Group) -> (f64, f64) {
        let room = 0.8 / self.series.len().max(1) as f64;
        let first = group.name as f64 - 0.4 + room / 2.0;
        (first + room * group.series as f64, room * 0.42)
    }

    /// The legend, from two series on. `key` gives the look of a series by its index.
    pub fn legend(&self, key: impl Fn(usize) -> Key) -> Vec<Entry> {
        if self.series.len() < 2 {
            return Vec::new();
        }
        self.series.iter().enumerate().map(|(index, label)| Entry { label: label.clone(), key: key(index) }).collect()
    }

    /// The quantity or kind of the names along the axis.
    pub fn title(records: &Records) -> String {
        if let Some(x) = records.axes.first() {
            return records.quantity(x).label;
        }
        let label = |column: &String| match &records.labels.title {
            Some(title) if column == "case" => title.clone(),
            _ => records.quantity(column).label,
        };
        records.by.iter().map(label).collect::<Vec<_>>().join(", ")
    }
}

fn index(known: &mut Vec<String>, name: String) -> usize {
    known.iter().position(|k| *k == name).unwrap_or_else(|| {
        known.push(name);
        known.len() - 1
    })
}
