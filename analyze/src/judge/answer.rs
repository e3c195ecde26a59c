//! Verdicts in a sentence, worst first.

use std::collections::HashSet;

use schemas::{
    columns::VerdictRow,
    metrics,
    text::counted,
    words::{Severity, Verdict},
};

use super::verdicts::{self, observed};

/// Rows that are named; of more, their number.
const NAMED: usize = 3;

/// The verdicts in a sentence, and the worst of them; `None` without verdicts. `against` names the other side of
/// the comparisons.
pub fn answer(rows: &[VerdictRow], against: &str) -> Option<(Verdict, String)> {
    let (compared, asserted): (Vec<&VerdictRow>, Vec<&VerdictRow>) = rows.iter().partition(|r| r.compares());
    let mut said: Vec<(Verdict, String)> =
        [assertions(&asserted), comparisons(&compared, against)].into_iter().flatten().collect();
    said.sort_by_key(|(verdict, _)| verdict.place());
    let worst = said.first()?.0;
    Some((worst, said.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ")))
}

/// `2 of 6 assertions fail: bulk throughput >= 9Gbit/s (8.1 Gbit/s ± 1 %); …`
fn assertions(rows: &[&VerdictRow]) -> Option<(Verdict, String)> {
    let all = rows.len();
    if all == 0 {
        return None;
    }
    let of = |is: &dyn Fn(&VerdictRow) -> bool| rows.iter().copied().filter(|r| is(r)).collect::<Vec<_>>();
    let name = |row: &VerdictRow| match observed(row) {
        seen if seen.is_empty() => format!("{} {}", row.case, row.assertion),
        seen => format!("{} {} ({seen})", row.case, row.assertion),
    };
    let failing = of(&VerdictRow::fails);
    let warned = of(&|r| r.verdict.is_bad() && r.severity == Severity::Warn);
    let unsure = of(&|r| r.verdict == Verdict::Inconclusive);
    let what = counted(all, "assertion");
    let mut said = Vec::new();
    for (some, verb, words) in [
        (&failing, ["fails", "fail"], ""),
        (&warned, ["fails", "fail"], ", which only warns"),
        (&unsure, ["is", "are"], " inconclusive"),
    ] {
        if let Some(list) = list(some, name) {
            let verb = verb[usize::from(some.len() != 1)];
            let who = if all == 1 { "The assertion".to_owned() } else { format!("{} of {what}", some.len()) };
            said.push(format!("{who} {verb}{words}: {list}."));
        }
    }
    let well = of(&|r| r.verdict.is_well()).len();
    if well > 0 && !said.is_empty() {
        said.push(if well == 1 { "The other one holds.".to_owned() } else { format!("The other {well} hold.") });
    }
    let verdict = match (failing.len(), warned.len() + unsure.len()) {
        (1.., _) => Verdict::Fail,
        (0, 1..) => Verdict::Inconclusive,
        (0, 0) => Verdict::Pass,
    };
    if said.is_empty() {
        said.push(match all {
            1 => format!("The assertion holds: {}.", name(rows[0])),
            2 => "Both assertions hold.".to_owned(),
            n => format!("All {n} assertions hold."),
        });
    }
    Some((verdict, said.join(" ")))
}

/// `1 of 3 comparisons with main.csv is a regression: bulk −5.2 % (−6.0 … −4.3).`
fn comparisons(rows: &[&VerdictRow], against: &str) -> Option<(Verdict, String)> {
    let all = rows.len();
    if all == 0 {
        return None;
    }
    let of = |wanted: Verdict| rows.iter().copied().filter(|r| r.verdict == wanted).collect::<Vec<_>>();
    let is_one_metric = rows.iter().all(|row| row.metric == rows[0].metric);
    let change = |row: &VerdictRow| {
        let text = verdicts::change(row);
        let metric = metrics::find(&row.metric).filter(|_| !is_one_metric).map_or("", |metric| metric.name);
        [&*row.case, metric, &text].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let with = format!("compared with {against}");
    let mut parts = Vec::new();
    for (verdict, words) in [
        (Verdict::Regression, ["is worse", "are worse"]),
        (Verdict::Improvement, ["is better", "are better"]),
        (Verdict::Changed, ["changed", "changed"]),
        (Verdict::Fail, ["fails without a counterpart", "fail without a counterpart"]),
        (Verdict::Inconclusive, ["is inconclusive", "are inconclusive"]),
        (Verdict::Error, ["may not be compared", "may not be compared"]),
    ] {
        let some = of(verdict);
        if let Some(list) = list(&some, change) {
            parts.push(format!("{} {} ({list})", some.len(), words[usize::from(some.len() != 1)]));
        }
    }
    for (verdict, words) in
        [(Verdict::Same, "the same"), (Verdict::NoWorse, "no worse"), (Verdict::Missing, "without a counterpart")]
    {
        match of(verdict).len() {
            0 => {}
            1 if all == 1 => parts.push(words.to_owned()),
            n if n == all => parts.push(format!("all {n} {words}")),
            n => parts.push(format!("{n} {words}")),
        }
    }
    let worst = [Verdict::Fail, Verdict::Regression, Verdict::Error, Verdict::Inconclusive, Verdict::Missing]
        .into_iter()
        .find(|v| !of(*v).is_empty())
        .unwrap_or(Verdict::Same);
    // A case may be compared by several metrics.
    let distinct = rows.iter().map(|row| (&row.case, &row.baseline_run_id)).collect::<HashSet<_>>().len();
    let cases = counted(all, if distinct == all { "case" } else { "comparison" });
    let with = if distinct == all { with } else { format!("with {against}") };
    let all_same = of(Verdict::Same).len() == all;
    let text = if all_same {
        format!("Of {cases} {with}, none changed by an amount that counts.")
    } else {
        format!("Of {cases} {with}: {}.", parts.join("; "))
    };
    Some((worst, text))
}

/// The first few, and how many more there are; `None` without any.
fn list(rows: &[&VerdictRow], name: impl Fn(&VerdictRow) -> String) -> Option<String> {
    let mut named: Vec<String> = rows.iter().take(NAMED).map(|r| name(r)).collect();
    if rows.len() > NAMED {
        named.push(format!("{} more", rows.len() - NAMED));
    }
    (!named.is_empty()).then(|| named.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, verdict: Verdict) -> VerdictRow {
        VerdictRow {
            case: case.into(),
            assertion: "throughput >= 9Gbit/s".into(),
            metric: "throughput_bits_per_s".into(),
            observed: Some(8.1e9),
            verdict,
            ..VerdictRow::default()
        }
    }

    fn said(rows: &[VerdictRow]) -> (Verdict, String) {
        answer(rows, "main.csv").unwrap()
    }

    #[test]
    fn assertions_in_a_sentence() {
        use Verdict::{Fail, Inconclusive, Pass};
        let warn = VerdictRow { severity: Severity::Warn, ..row("c up", Fail) };
        let (verdict, text) = said(&[row("a", Pass), row("b", Fail), warn, row("d", Inconclusive)]);
        assert_eq!(verdict, Fail);
        assert_eq!(
            text,
            "1 of 4 assertions fails: b throughput >= 9Gbit/s (8.10 Gbit/s). \
             1 of 4 assertions fails, which only warns: c up throughput >= 9Gbit/s (8.10 Gbit/s). \
             1 of 4 assertions is inconclusive: d throughput >= 9Gbit/s (8.10 Gbit/s). The other one holds."
        );
        assert_eq!(said(&[row("a", Pass), row("b", Pass)]), (Pass, "Both assertions hold.".into()));
        assert_eq!(said(&[row("a", Pass)]).1, "The assertion holds: a throughput >= 9Gbit/s (8.10 Gbit/s).");
        assert_eq!(said(&[row("a", Fail)]).1, "The assertion fails: a throughput >= 9Gbit/s (8.10 Gbit/s).");
        assert_eq!(answer(&[], "x"), None);
    }

    #[test]
    fn comparisons_in_a_sentence() {
        use Verdict::{Inconclusive, NoWorse, Regression, Same};
        let compared = |case, verdict, change| VerdictRow {
            baseline: Some(8e9),
            change_ratio: Some(change),
            ci_low_ratio: Some(change - 0.01),
            ci_high_ratio: Some(change + 0.01),
            limit_ratio: Some(0.03),
            ..row(case, verdict)
        };
        let (verdict, text) =
            said(&[compared("a", Same, 0.001), compared("b", Regression, -0.052), compared("c", Inconclusive, 0.02)]);
        assert_eq!(verdict, Regression);
        assert!(text.starts_with("Of 3 cases compared with main.csv: 1 is worse (b −5.2 % ("), "{text}");
        assert!(text.ends_with("; 1 the same."), "{text}");
        let (verdict, text) = said(&[row("a", Verdict::Pass), compared("a", Regression, -0.052)]);
        assert_eq!(verdict, Regression);
        let latency = VerdictRow { metric: "latency_p50_us".into(), ..compared("b", Regression, 0.1) };
        let (_, both) = said(&[compared("b", Regression, -0.052), latency]);
        assert!(both.starts_with("Of 2 comparisons with main.csv: 2 are worse (b throughput −5.2 % ("), "{both}");
        assert!(both.contains("; b latency.p50 +10 % ("), "{both}");
        assert!(text.starts_with("Of 1 case compared") && text.contains("The assertion holds"), "{text}");
        let (verdict, text) = said(&[compared("a", NoWorse, 0.012)]);
        assert_eq!((verdict, text.as_str()), (Same, "Of 1 case compared with main.csv: no worse."));
        let (verdict, text) = said(&[compared("a", Same, 0.001)]);
        assert_eq!(
            (verdict, text.as_str()),
            (Same, "Of 1 case compared with main.csv, none changed by an amount that counts.")
        );
        // Only one side has values: it is a comparison all the same.
        for (verdict, words) in [
            (Verdict::Fail, "1 fails without a counterpart (b)"),
            (Inconclusive, "1 is inconclusive (b)"),
            (Verdict::Missing, "without a counterpart"),
        ] {
            let alone = VerdictRow { limit_ratio: Some(0.03), ..row("b", verdict) };
            assert_eq!(said(&[alone]), (verdict, format!("Of 1 case compared with main.csv: {words}.")));
        }
    }
}
