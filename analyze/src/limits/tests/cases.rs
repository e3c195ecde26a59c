//! The answers of cases: the cause on which iterations agree, and the lines below a table.

use schemas::{
    columns::Row,
    words::{LimitedBy, Way},
};

use super::{
    super::{Limit, Tally, both_ways, lines},
    stream,
};

fn tallied(causes: &[LimitedBy], mean: &Row) -> Limit {
    let mut tally = Tally::default();
    for by in causes {
        let mut row = Row::default();
        Limit { by: *by, ratio: Some(0.5), because: "so it was; this could not be seen: drops at b".into() }
            .fill(&mut row);
        tally.push(&row);
    }
    tally.limit(mean).unwrap()
}

#[test]
fn a_case_has_the_cause_of_over_two_thirds_of_its_iterations() {
    use LimitedBy::{Bbr, Pacing, Path, ReceiverWindow, SenderCpu, Unknown, Wire};
    let mean = Row { rwnd_limited_ratio: Some(0.9), remote_receive_buffer_bytes: Some(65_536), ..stream() };
    let agreed = tallied(&[ReceiverWindow, ReceiverWindow, SenderCpu, ReceiverWindow], &mean);
    assert_eq!((agreed.by, agreed.ratio), (ReceiverWindow, Some(0.9)));
    assert!(
        agreed.because.starts_with("90 % of the time")
            && agreed.because.ends_with("this could not be seen: drops at b")
    );
    let split = tallied(&[ReceiverWindow, SenderCpu, ReceiverWindow], &mean);
    assert_eq!(split.by, Unknown);
    assert_eq!(split.because, "receiver window in 2 of 3 iterations, sender CPU in 1");
    assert_eq!(tallied(&[ReceiverWindow, Unknown, ReceiverWindow], &mean).by, ReceiverWindow, "nothing contradicts it");
    assert_eq!(tallied(&[ReceiverWindow, Unknown], &mean).by, Unknown);
    // One full link has two names.
    assert_eq!([&[Wire, Path, Wire], &[Path, Wire, Path]].map(|both| tallied(both, &mean).by), [Wire, Path]);
    assert_eq!(tallied(&[Wire, Path, ReceiverWindow], &mean).by, Unknown);
    // BBR paces at the link's rate, and the plan's rate is another cause.
    assert_eq!([&[Bbr, Path, Bbr], &[Bbr, Bbr, Wire]].map(|both| tallied(both, &mean).by), [Path, Wire]);
    assert_eq!(tallied(&[Bbr; 3], &mean).by, Bbr);
    let split = tallied(&[Pacing, Path, Path], &mean);
    assert_eq!((split.by, &*split.because), (Unknown, "path in 2 of 3 iterations, pacing in 1"));
    let causes = super::super::agreed([Bbr, Path, Bbr].into_iter());
    assert_eq!(causes, Some((Path, "BBR in 2 of 3 iterations, path in 1".to_owned())));
    // The means may tell less than each iteration did.
    let last = tallied(&[Wire; 3], &mean);
    assert_eq!((last.by, last.because.starts_with("in a typical iteration, so it was")), (Wire, true));
    assert_eq!(Tally::default().limit(&mean), None);
}

#[test]
fn iterations_that_differ_are_told_by_the_one_in_the_middle() {
    let told = |rates: &[f64]| {
        let mut tally = Tally::default();
        for rate in rates {
            let mut row = Row { throughput_bits_per_s: Some(*rate), ..Row::default() };
            let because = format!("the window is full at {rate}");
            Limit { by: LimitedBy::ReceiverWindow, ratio: Some(0.9), because }.fill(&mut row);
            tally.push(&row);
        }
        let mean = Row { rwnd_limited_ratio: Some(0.9), remote_receive_buffer_bytes: Some(65_536), ..stream() };
        tally.limit(&mean).unwrap().because
    };
    assert!(told(&[191.0, 190.0, 192.0]).starts_with("90 % of the time"));
    // A link was down in one of them: the mean of all is the rate of none.
    assert_eq!(told(&[191.0, 36.4, 190.0, 192.0, 189.0]), "in a typical iteration, the window is full at 190");
}

#[test]
fn two_ways_have_one_answer_if_they_agree() {
    let limit = |by, ratio| Limit { by, ratio: Some(ratio), because: "why".into() };
    let both = both_ways(&limit(LimitedBy::Wire, 0.9), &limit(LimitedBy::Wire, 1.0));
    assert_eq!((both.by, both.ratio), (LimitedBy::Wire, Some(0.95)));
    let apart = both_ways(&limit(LimitedBy::Wire, 0.9), &limit(LimitedBy::Loss, 1.0));
    assert_eq!((apart.by, apart.because.as_str()), (LimitedBy::Unknown, "upload wire, download loss"));
}

#[test]
fn each_case_has_a_line_and_many_cases_share_lines() {
    let row = |by, way| Row {
        limited_by: Some(by),
        limited_because: Some("so".into()),
        direction: Some(way),
        case: Some("a".into()),
        ..Row::default()
    };
    let of_ways = [(LimitedBy::Wire, Way::Forward), (LimitedBy::Loss, Way::Reverse), (LimitedBy::Unknown, Way::Both)];
    let rows = of_ways.map(|(by, way)| row(by, way));
    let told = lines(rows.iter().map(|row| ("a".to_owned(), row)));
    assert_eq!(told, ["a (forward): limited by wire: so", "a (reverse): limited by loss: so"]);
    let alike = of_ways.map(|(_, way)| row(LimitedBy::Wire, way));
    assert_eq!(lines(alike.iter().map(|row| ("a".to_owned(), row))), ["a: limited by wire: so"], "both ways agree");
    let unknown = of_ways.map(|(_, way)| row(LimitedBy::Unknown, way));
    let full = |rate: &str| Row {
        limited_by: Some(LimitedBy::Path),
        limited_because: Some(format!("full at {rate}{}", super::super::ends::NAME_WIRE)),
        ..Row::default()
    };
    let (slow, fast) = (full("1"), full("2"));
    let told = lines([("a".to_owned(), &slow), ("b".to_owned(), &fast)].into_iter());
    assert!(told[0].contains("wire: 100Mbit/s"), "{told:?}");
    assert_eq!(told[1], "b: limited by path: full at 2");
    let told = lines(unknown.iter().map(|row| ("a".to_owned(), row)));
    assert_eq!(told, ["a (forward), a (reverse): limit unknown: so"], "once");
    assert_eq!(lines([("a".to_owned(), &Row::default())].into_iter()), Vec::<String>::new());
    let [one, two] = [(LimitedBy::Pacing, "a"), (LimitedBy::Loss, "b")]
        .map(|(by, case)| Row { case: Some(case.into()), ..row(by, Way::Forward) });
    let told = lines([("p", &one), ("b", &two), ("q", &one)].into_iter().map(|(name, row)| (name.to_owned(), row)));
    assert_eq!(told, ["p, q: limited by pacing: so", "b: limited by loss: so"], "one answer of two cases");

    let many: Vec<(String, Row)> = (0..20)
        .map(|i| {
            let by = if i % 4 == 0 { LimitedBy::Unknown } else { LimitedBy::SenderCpu };
            (format!("c{i}"), Row { case: Some(format!("c{i}")), ..row(by, Way::Forward) })
        })
        .collect();
    let told = lines(many.iter().map(|(name, row)| (name.clone(), row)));
    assert_eq!(told[0], "limited by sender CPU: c1, c2, c3, c5 and 11 more");
    assert_eq!(told[1], "limit unknown: c0, c4, c8, c12 and 1 more");
    assert!(told[2].contains("limited_because") && told.len() == 3);
}
