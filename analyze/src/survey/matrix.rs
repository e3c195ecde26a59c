//! The values of a survey: one per ordered pair of hosts.

use crate::stats::{moments::Moments, quantiles};
use indexmap::IndexSet;
use schemas::metrics::Better;
use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap, HashSet},
};

/// One ordered pair of a survey, or one measurement of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Cell {
    /// Not measured, or not asked for.
    #[default]
    Missing,
    /// Tried, without a value.
    Failed,
    /// Measured while others took a CPU of its hosts: the pair can be so good, and is perhaps better.
    Disturbed(f64),
    /// Measured: a positive number.
    Value(f64),
}

/// The iterations of a pair that has several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scatter {
    pub count: usize,
    /// Standard deviation of the values' logarithms.
    pub deviation: f64,
}

/// Hosts in order, and a cell for each ordered pair of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    hosts: Vec<String>,
    /// `from` × hosts + `to`.
    cells: Vec<Cell>,
    scatter: HashMap<(usize, usize), Scatter>,
    /// Of a pair with a value and several measurements: its smallest and largest, disturbed ones too.
    reached: HashMap<(usize, usize), (f64, f64)>,
    /// Pairs with a value of which an iteration failed, in order.
    partly: Vec<(usize, usize)>,
    /// Pairs that were asked for and not measured, in order.
    unmeasured: Vec<(usize, usize)>,
    /// Failed pairs that were measured, and of whose values half or more are 0.
    silent: HashSet<(usize, usize)>,
    /// The round in which a pair was measured.
    rounds: HashMap<(usize, usize), u64>,
}

impl Matrix {
    /// A matrix in which every pair is missing.
    pub fn new(hosts: Vec<String>) -> Self {
        let cells = vec![Cell::Missing; hosts.len() * hosts.len()];
        Self {
            hosts,
            cells,
            scatter: HashMap::new(),
            reached: HashMap::new(),
            partly: Vec::new(),
            unmeasured: Vec::new(),
            silent: HashSet::new(),
            rounds: HashMap::new(),
        }
    }

    /// The same with the rounds of pairs `(from, to, round)`: those of a round were measured at the same time.
    #[must_use]
    pub fn in_rounds<S: AsRef<str>>(mut self, rounds: impl IntoIterator<Item = (S, S, u64)>) -> Self {
        let places: HashMap<&str, usize> = self.hosts.iter().map(String::as_str).zip(0..).collect();
        let place = |host: S| places.get(host.as_ref()).copied();
        self.rounds =
            rounds.into_iter().filter_map(|(from, to, round)| Some(((place(from)?, place(to)?), round))).collect();
        self
    }

    /// The round in which a pair was measured.
    pub fn round(&self, from: usize, to: usize) -> Option<u64> {
        self.rounds.get(&(from, to)).copied()
    }

    /// The matrix of measurements `(from, to, cell)`, with the hosts in [`natural`] order. The cell of a pair with several
    /// values is their median, which one disturbed iteration does not move far; disturbed measurements count only where there is
    /// no other, and for [`Self::bests`]. A pair has failed if every attempt has, or if half of its values are 0.
    ///
    /// ```
    /// use analyze::survey::{Cell, Matrix};
    ///
    /// let measured = [
    ///     ("n2", "n10", Cell::Value(9.3)),
    ///     ("n10", "n2", Cell::Failed),
    ///     ("n2", "n10", Cell::Value(9.5)),
    ///     ("n2", "n10", Cell::Disturbed(4.1)),
    /// ];
    /// let matrix = Matrix::of(measured);
    /// assert_eq!(matrix.hosts(), ["n2", "n10"]);
    /// assert_eq!((matrix.cell(0, 1), matrix.cell(1, 0)), (Cell::Value(9.4), Cell::Failed));
    /// ```
    pub fn of<S: AsRef<str>>(measurements: impl IntoIterator<Item = (S, S, Cell)>) -> Self {
        Self::among(std::iter::empty::<&str>(), measurements)
    }

    /// Like [`Self::of`], also with hosts that no measurement names.
    pub fn among<H: AsRef<str>, S: AsRef<str>>(
        known: impl IntoIterator<Item = H>,
        measurements: impl IntoIterator<Item = (S, S, Cell)>,
    ) -> Self {
        let mut hosts = IndexSet::<String>::new();
        let mut index = |name: &str| hosts.insert_full(name.to_owned()).0;
        for name in known {
            index(name.as_ref());
        }
        let mut pairs: HashMap<(usize, usize), (Vec<f64>, Vec<f64>)> = HashMap::new();
        let (mut failed, mut asked) = (Vec::new(), Vec::new());
        for (from, to, cell) in measurements {
            let pair = (index(from.as_ref()), index(to.as_ref()));
            if cell == Cell::Missing {
                asked.push(pair);
                continue;
            }
            let (values, disturbed) = pairs.entry(pair).or_default();
            match cell {
                Cell::Value(value) if value.is_finite() => values.push(value),
                Cell::Disturbed(value) if value.is_finite() => disturbed.push(value),
                Cell::Failed => failed.push(pair),
                _ => {}
            }
        }
        let mut order: Vec<usize> = (0..hosts.len()).collect();
        order.sort_by(|a, b| natural(&hosts[*a], &hosts[*b]));
        let mut place = vec![0; hosts.len()];
        for (new, old) in order.iter().enumerate() {
            place[*old] = new;
        }
        let mut matrix = Self::new(order.iter().map(|old| hosts[*old].clone()).collect());
        for ((from, to), (mut values, mut disturbed)) in pairs {
            let positive_median = |values: &mut [f64]| quantiles::select_median(values).filter(|v| *v > 0.0);
            let pair = (place[from], place[to]);
            let cell = match positive_median(&mut values) {
                Some(median) => {
                    matrix.scatter.extend(Scatter::of(&values).map(|scatter| (pair, scatter)));
                    let all = values.iter().chain(&disturbed);
                    let range = all.fold((median, median), |(least, most), v| (v.min(least), v.max(most)));
                    if values.len() + disturbed.len() > 1 {
                        matrix.reached.insert(pair, range);
                    }
                    Cell::Value(median)
                }
                None if values.is_empty() => positive_median(&mut disturbed).map_or(Cell::Failed, Cell::Disturbed),
                None => {
                    matrix.silent.insert(pair);
                    Cell::Failed
                }
            };
            matrix.set(pair.0, pair.1, cell);
        }
        let placed = |pairs: Vec<(usize, usize)>, is_kept: &dyn Fn(Cell) -> bool| {
            let placed = pairs.into_iter().map(|(from, to)| (place[from], place[to]));
            let kept: BTreeSet<_> = placed.filter(|(from, to)| is_kept(matrix.cell(*from, *to))).collect();
            kept.into_iter().collect()
        };
        let partly = placed(failed, &|cell| cell != Cell::Failed);
        let unmeasured = placed(asked, &|cell| cell == Cell::Missing);
        Self { partly, unmeasured, ..matrix }
    }

    /// The iterations of a pair. `None`: it has one, or no value.
    pub fn scatter(&self, from: usize, to: usize) -> Option<Scatter> {
        self.scatter.get(&(from, to)).copied()
    }

    /// The matrix of the pairs' best iterations, disturbed ones too: what takes a CPU slows a pair, and speeds up none. `None`: no
    /// pair has several.
    pub fn bests(&self, better: Better) -> Option<Self> {
        if self.reached.is_empty() {
            return None;
        }
        let mut bests = Self { scatter: HashMap::new(), ..self.clone() };
        for ((from, to), (least, most)) in &self.reached {
            bests.set(*from, *to, Cell::Value(if better == Better::Lower { *least } else { *most }));
        }
        Some(bests)
    }

    /// Pairs that were asked for and not measured, as after an interruption.
    pub fn unmeasured(&self) -> &[(usize, usize)] {
        &self.unmeasured
    }

    /// Pairs with a value of which an iteration failed.
    pub fn partly_failed(&self) -> &[(usize, usize)] {
        &self.partly
    }

    /// Whether a failed pair was measured, and nothing came through.
    pub fn is_silent(&self, pair: (usize, usize)) -> bool {
        self.silent.contains(&pair)
    }

    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// The number of hosts.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    pub fn cell(&self, from: usize, to: usize) -> Cell {
        self.cells[from * self.len() + to]
    }

    pub fn set(&mut self, from: usize, to: usize, cell: Cell) {
        let at = from * self.len() + to;
        self.cells[at] = cell;
    }

    /// The ordered pairs of different hosts, row by row.
    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize, Cell)> + '_ {
        let n = self.len();
        (0..n * n).map(move |at| (at / n, at % n, self.cells[at])).filter(|(from, to, _)| from != to)
    }

    /// The pairs that were measured, or that failed.
    pub fn tried(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.pairs().filter(|pair| pair.2 != Cell::Missing).map(|(from, to, _)| (from, to))
    }

    /// The values in ascending order.
    pub fn values(&self) -> Vec<f64> {
        let value = |cell| if let Cell::Value(v) = cell { Some(v) } else { None };
        let mut values: Vec<f64> = self.pairs().filter_map(|(_, _, cell)| value(cell)).collect();
        quantiles::sort(&mut values);
        values
    }
}

impl Scatter {
    /// `None` of fewer than two values. Values of 0 have no logarithm, and are left out of the deviation.
    fn of(values: &[f64]) -> Option<Self> {
        let logarithms: Vec<f64> = values.iter().filter(|v| **v > 0.0).map(|v| v.ln()).collect();
        (values.len() > 1).then(|| Self {
            count: values.len(),
            deviation: logarithms.iter().copied().collect::<Moments>().stddev().unwrap_or(0.0),
        })
    }
}

/// Compares names as people number hosts: a run of digits counts as a number, so `node2` comes before `node10`.
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.as_bytes(), b.as_bytes());
    loop {
        let digits = |text: &[u8]| text.iter().take_while(|c| c.is_ascii_digit()).count();
        let (d, e) = (digits(left), digits(right));
        let order = if d > 0 && e > 0 {
            let number = |text: &[u8], digits: usize| -> Vec<u8> {
                text[..digits].iter().copied().skip_while(|c| *c == b'0').collect()
            };
            let (m, n) = (number(left, d), number(right, e));
            (left, right) = (&left[d..], &right[e..]);
            m.len().cmp(&n.len()).then(m.cmp(&n))
        } else {
            match (left.split_first(), right.split_first()) {
                // Names that differ only in leading zeros, such as `n1` and `n01`.
                (None, None) => return a.cmp(b),
                (x, y) => {
                    let order = x.map(|x| x.0).cmp(&y.map(|y| y.0));
                    left = x.map_or(&[][..], |x| x.1);
                    right = y.map_or(&[][..], |y| y.1);
                    order
                }
            }
        };
        if order.is_ne() {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_in_names_count() {
        let mut names = ["n10", "n9", "n1-10", "n1-9", "m2", "n", "n01", "n1", "10.0.0.12", "10.0.0.2"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["10.0.0.2", "10.0.0.12", "m2", "n", "n01", "n1", "n1-9", "n1-10", "n9", "n10"]);
    }

    proptest! {
        #[test]
        fn the_order_is_total(a in "[a-c0-2.]{0,5}", b in "[a-c0-2.]{0,5}", c in "[a-c0-2.]{0,5}") {
            prop_assert_eq!(natural(&a, &b), natural(&b, &a).reverse());
            prop_assert_eq!(natural(&a, &b).is_eq(), a == b);
            if natural(&a, &b).is_lt() && natural(&b, &c).is_lt() {
                prop_assert!(natural(&a, &c).is_lt());
            }
        }
    }

    #[test]
    fn iterations_become_one_value() {
        let matrix = Matrix::of([
            ("b", "a", Cell::Value(3.0)),
            ("b", "a", Cell::Failed),
            ("b", "a", Cell::Value(9.0)),
            ("b", "a", Cell::Disturbed(10.0)),
            ("b", "a", Cell::Value(4.0)),
            ("c", "a", Cell::Failed),
            ("a", "c", Cell::Value(0.0)),
            ("c", "b", Cell::Disturbed(2.0)),
            ("c", "b", Cell::Failed),
        ]);
        assert_eq!(matrix.hosts(), ["a", "b", "c"]);
        assert_eq!(matrix.cell(1, 0), Cell::Value(4.0));
        assert_eq!((matrix.cell(2, 0), matrix.cell(0, 2)), (Cell::Failed, Cell::Failed));
        assert_eq!((matrix.cell(0, 1), matrix.cell(2, 1)), (Cell::Missing, Cell::Disturbed(2.0)));
        let scatter = matrix.scatter(1, 0).unwrap();
        assert_eq!((scatter.count, matrix.scatter(2, 1)), (3, None));
        let best = |better| matrix.bests(better).unwrap().cell(1, 0);
        // A disturbed iteration shows what the pair can reach.
        assert_eq!((best(Better::Lower), best(Better::Higher)), (Cell::Value(3.0), Cell::Value(10.0)));
        assert_eq!(matrix.pairs().count(), 6);
        assert_eq!(matrix.values(), [4.0]);
    }
}
