//! The subject and the footer of a picture, from the rows that are drawn.

use super::Records;
use schemas::{
    columns::{results::column, verdicts::column as verdict},
    text::short_id,
};

impl Records {
    /// The footer: run, hosts, date, iterations.
    pub fn footer(&self) -> Vec<String> {
        let mut parts = Vec::new();
        let sides = [(column::run_id, "run"), (verdict::baseline_run_id, "baseline run")];
        // The sides of `compare --by` are of one run.
        let is_one = self.distinct(column::run_id) == self.distinct(verdict::baseline_run_id);
        for (column, word) in sides.into_iter().take(if is_one { 1 } else { 2 }) {
            match self.distinct(column)[..] {
                [] => {}
                [run] => parts.push(format!("{word} {}", short_id(run))),
                ref runs => parts.push(format!("{} {word}s", runs.len())),
            }
        }
        let mut hosts: Vec<String> = Vec::new();
        for record in &self.list {
            let pair = format!("{} → {}", self.text(record, column::from), self.text(record, column::to));
            if pair.chars().count() > 3 && !hosts.contains(&pair) {
                hosts.push(pair);
            }
        }
        match hosts.len() {
            0 => {}
            1..=3 => parts.push(hosts.join(", ")),
            more => parts.push(format!("{} and {} more pairs of hosts", hosts[0], more - 1)),
        }
        let mut days: Vec<&str> =
            self.distinct(column::time).into_iter().map(|t| t.split('T').next().unwrap_or(t)).collect();
        days.sort_unstable();
        match (days.first(), days.last()) {
            (Some(first), Some(last)) if first == last => parts.push((*first).to_owned()),
            (Some(first), Some(last)) => parts.push(format!("{first} … {last}")),
            _ => {}
        }
        match self.distinct(column::iteration).len() {
            0 => {}
            1 => parts.push("1 iteration".to_owned()),
            n => parts.push(format!("{n} iterations")),
        }
        parts
    }

    /// The subject of the title: the name of the plan, and of the test and the member where there is only one.
    pub fn subject(&self) -> Option<String> {
        let plans = self.distinct(column::plan);
        let tests = self.distinct(column::test);
        let mut parts: Vec<&str> = Vec::new();
        if let [plan] = plans[..] {
            parts.push(plan);
        }
        if let [test] = tests[..]
            && !parts.contains(&test)
        {
            parts.push(test);
        }
        if let [member] = self.distinct(column::member)[..]
            && self.list.iter().all(|record| !self.text(record, column::member).is_empty())
            && !parts.contains(&member)
        {
            parts.push(member);
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}
