//! From a table to the rows of a picture.

use super::{
    identity::{self, FACTS, NAMES},
    options::Options,
    quantity::Quantity,
    records::{Columns, Lacking, Record, Records, Wanted},
};
use crate::{
    error::Error,
    table::{
        InputArgs, Record as RecordKind, Row, Table,
        select::{Picker, Preferred, Selection},
    },
};
use indexmap::{IndexMap, IndexSet};
use schemas::{columns::AXIS_PREFIX, units::parse_with_unit};
use std::collections::HashMap;

/// The cells of a [`Record`].
#[derive(Default)]
struct Places {
    /// The columns of the table. `None` stands for `file`, which tells rows apart like a column.
    columns: IndexSet<Option<usize>>,
    /// Those that hold numbers.
    numbers: Vec<usize>,
    /// Columns that hold numbers, or quantities with their units.
    quantities: Vec<usize>,
    /// Places of cells that every row must have.
    required: Vec<usize>,
}

impl Places {
    fn record(&self, row: &Row<'_>) -> Result<Record, Error> {
        for column in &self.numbers {
            row.number(*column)?;
        }
        for column in self.quantities.iter().filter(|column| parse_with_unit(row.get(**column)).is_none()) {
            row.number(*column)?;
        }
        let cells = self.columns.iter().map(|c| c.map_or(row.file(), |c| row.get(c)).into()).collect();
        Ok(Record { cells, line: row.line() })
    }

    /// The place of a column, which gets the name by which it was asked for, and its own.
    fn of(&mut self, name: &str, column: Option<usize>, table: &Table, known: &mut HashMap<String, usize>) -> usize {
        let (place, _) = self.columns.insert_full(column);
        let own = column.map(|column| table.header().names()[column].as_str());
        known.extend(std::iter::once(name).chain(own).map(|name| (name.to_owned(), place)));
        place
    }
}

/// The axis column of a swept key that a name means, where the table has one: it has the swept value in every row. Else
/// the name.
fn swept_name(table: &Table, name: &str) -> Result<String, Error> {
    if name == "file" {
        return Ok(name.to_owned());
    }
    Ok(table.header().axis_of(table.asked(name)?).unwrap_or_else(|| name.to_owned()))
}

impl Records {
    /// Reads the files. A row counts if it has all required columns. Without `options.by`, series are told apart by the
    /// fewest columns that keep rows of different identity apart. With it, rows that would still be joined are an error.
    pub fn new(
        options: &Options,
        input: &InputArgs,
        selection: &Selection,
        columns: &Columns<'_>,
    ) -> Result<Self, Error> {
        Self::of_table(&mut Table::open(input)?, options, selection, columns)
    }

    /// [`Records::new`] of a table that is already open.
    pub fn of_table(
        table: &mut Table,
        options: &Options,
        selection: &Selection,
        columns: &Columns<'_>,
    ) -> Result<Self, Error> {
        let mut records = Self::default();
        let places = records.place(table, options, columns)?;
        let test = match options.tests[..] {
            [] => None,
            _ => Some(table.require("test")?),
        };
        let mut picker = Picker::new(selection, table)?;
        let probes = selection.record.as_deref() == Some(RecordKind::Probe.as_str());
        let summaries = Selection { record: Some(RecordKind::Summary.to_string()), ..selection.clone() };
        let mut answers = if probes { Some(Picker::new(&summaries, table)?) } else { None };
        let mut kept: Preferred<Vec<Record>> = Preferred::default();
        let mut lacking = IndexMap::<RecordKind, Lacking>::new();
        while let Some(row) = table.next_row()? {
            if test.is_some_and(|column| !options.tests.iter().any(|name| name == row.get(column))) {
                continue;
            }
            if let Some(answers) = &mut answers
                && answers.pick(&row)?.is_some()
            {
                let record = places.record(&row)?;
                if !records.text(&record, "search").is_empty() {
                    records.answers.push(record);
                }
                continue;
            }
            let Some(kind) = picker.pick(&row)? else { continue };
            let record = places.record(&row)?;
            // A kind of which no row can be drawn must not displace one that can.
            match records.lacks(&record, &places, columns) {
                None => {
                    if let Some(list) = kept.slot(kind) {
                        list.push(record);
                    }
                }
                Some(column) => {
                    let of_kind = lacking.entry(kind).or_default();
                    *of_kind.entry((column, records.case_of(&record))).or_default() += 1;
                }
            }
        }
        picker.matched(table)?;
        records.uncounted = picker.note();
        if let Some((kind, list)) = kept.into_kept() {
            records.kind = Some(kind);
            records.list = list;
        }
        // Rows of other kinds were not asked for.
        lacking.retain(|kind, _| records.kind.is_none_or(|kept| kept == *kind));
        records.lacking = lacking.into_values().flatten().collect();
        records.find_swept();
        records.read_units();
        records.scale_offered();
        records.choose_metric(columns);
        records.choose_axes(columns)?;
        records.tell_apart(options, columns)?;
        records.notes.extend(records.left_out());
        Ok(records)
    }

    /// Finds the columns in the table.
    fn place(&mut self, table: &Table, options: &Options, columns: &Columns<'_>) -> Result<Places, Error> {
        let mut places = Places::default();
        let names = table.header().names();
        let known = &mut self.columns;
        let asked =
            |wanted: &[Wanted<'_>]| wanted.iter().filter_map(|w| w.given().map(str::to_owned)).collect::<Vec<_>>();
        let metric = asked(&[columns.metric]);
        for name in &metric {
            table.asked(name)?;
        }
        let axes: Vec<String> =
            asked(columns.axes).iter().map(|name| swept_name(table, name)).collect::<Result<_, _>>()?;
        let (numeric_axes, named) = if columns.numeric_axes { (&axes[..], &[][..]) } else { (&[][..], &axes[..]) };
        for name in columns.numbers.iter().copied().chain(metric.iter().chain(numeric_axes).map(String::as_str)) {
            let column = table.require(name)?;
            let place = places.of(name, Some(column), table, known);
            places.required.push(place);
            if names[column].starts_with(AXIS_PREFIX) { &mut places.quantities } else { &mut places.numbers }
                .push(column);
        }
        let headlines = columns.metric.candidates();
        for name in columns.optional.iter().copied().chain(headlines) {
            if let Some(column) = table.header().find(name) {
                places.of(name, Some(column), table, known);
                places.numbers.push(column);
            }
        }
        for name in columns.required_texts.iter().copied().chain(named.iter().map(String::as_str)) {
            let column = if name == "file" { None } else { Some(table.require(name)?) };
            let place = places.of(name, column, table, known);
            places.required.push(place);
        }
        let optional = columns.texts.iter().copied().chain(NAMES).chain(identity::parameters()).chain(FACTS);
        let optional = optional.chain(columns.along.iter().copied()).chain(axes.iter().map(String::as_str));
        let optional = optional.chain(names.iter().map(String::as_str).filter(|name| name.starts_with(AXIS_PREFIX)));
        for name in optional.chain(options.by.iter().map(String::as_str)) {
            let column = if name == "file" { Some(None) } else { table.header().find(name).map(Some) };
            if let Some(column) = column {
                places.of(name, column, table, known);
            }
        }
        for name in options.by.iter().filter(|name| *name != "file") {
            table.asked(name)?;
        }
        // A column has several names: the table's own is the one to compare.
        let own = |column: &Option<usize>| column.map_or("file", |column| &names[column]).to_owned();
        self.own = places.columns.iter().map(own).collect();
        self.metric = metric.first().map(|name| self.own_name(name)).unwrap_or_default();
        Ok(places)
    }

    /// A required column that the row does not have, as a person calls it.
    fn lacks(&self, record: &Record, places: &Places, columns: &Columns<'_>) -> Option<String> {
        if let Some(place) = places.required.iter().find(|place| record.cells[**place].is_empty()) {
            // A column stands under its name and the name that was asked for. Both have one label.
            let names = self.columns.iter().filter(|entry| entry.1 == place).map(|entry| entry.0);
            let longest = names.max_by_key(|name| name.len());
            return Some(longest.map(|name| Quantity::of_column(name).label).unwrap_or_default());
        }
        (columns.metric == Wanted::Default && self.headline_of(record).is_none()).then(|| "a headline".to_owned())
    }
}
