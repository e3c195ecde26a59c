//! Naming what is significantly slow.

use super::{
    Finding, Kind, Role, Rule, Sensitivity, Suspect,
    design::{Design, Factor, Fit, QUARTILE, Side},
};
use crate::stats::{
    confidence::t_quantile,
    quantiles::{self, select_median},
};

/// Effects of hosts from which on their spread is estimated.
const FEWEST_HOSTS: usize = 5;

/// Robust standard deviations of the hosts' effects by which a suspect stands out from them (Hampel's identifier: Davies
/// and Gather, Journal of the American Statistical Association 88, 1993).
const STANDS_OUT: f64 = 3.0;

/// The level of an effect's interval.
const INTERVAL: f64 = 0.95;

/// Leverage above which the fit nearly follows a pair, and cannot judge it.
const MOST_LEVERAGE: f64 = 0.75;

/// Part of the level that is kept back, since noise is not quite normal: the median of three normal values exceeds such limits
/// half again as often.
const MARGIN: f64 = 2.0;

/// Other pairs of a round from which on their median tells what slowed them all.
const FEWEST_OF_ROUND: usize = 3;

/// By how much, over the degrees of freedom, limits are wider than Student's. His t has a standard deviation of least squares
/// below it; that of a robust fit of few pairs varies more. Found by simulation.
const WIDENING: f64 = 1.5;

/// Standard error of the median of normal values over that of their mean: √(π ÷ 2).
const MEDIAN_ERROR: f64 = 1.253_314_137_315_500_3;

struct Limits {
    /// In standard errors.
    host: f64,
    /// Of the interval, in standard errors.
    interval: f64,
    /// In standard deviations of the noise.
    link: f64,
}

/// The slow ones among all hosts and links.
pub fn find(design: &Design, factor: &Factor, fit: &Fit, rule: &Rule) -> Finding {
    let hypotheses = design.observations.len() + hosts(design) + design.columns - design.levels;
    find_at(rule.alpha / (MARGIN * hypotheses as f64), design, factor, fit, rule)
}

/// The hosts and links that are slow at a chance of `p` for each alone.
pub fn find_at(p: f64, design: &Design, factor: &Factor, fit: &Fit, rule: &Rule) -> Finding {
    let (Some(student), Some(interval)) =
        (t_quantile(1.0 - p, fit.freedom), t_quantile(f64::midpoint(1.0, INTERVAL), fit.freedom))
    else {
        return Finding::default();
    };
    let residuals: Vec<f64> = fit.residuals.iter().map(|r| rule.cautious(*r)).collect();
    let heavy = limit(&residuals, p).map(|limit| limit / fit.noise).filter(|heavy| *heavy > student);
    let student = student * (1.0 + WIDENING / fit.freedom);
    let limits = Limits { host: student, interval, link: heavy.unwrap_or(student) };
    let hosts = slow_hosts(design, factor, fit, rule, &limits);
    let (of_round, links): (Vec<_>, Vec<_>) = slow_links(design, factor, fit, rule, &limits)
        .into_iter()
        .partition(|link| slowed_by_round(design, fit, rule, link.example) > link.worse - rule.least_effect);
    let error = hosts.least_error.map(|error| rule.share_of_cautious(limits.host * error).max(rule.least_effect));
    let sensitivity =
        Sensitivity { host: error, link: rule.share_of_cautious(limits.link * fit.noise).max(rule.least_effect) };
    let mut suspects = hosts.suspects;
    suspects.extend(links);
    // As with slow pairs: the smaller of the two ways to express it.
    let is_fast = |residual: f64| {
        let (gain, share) = (-residual, -rule.share(residual));
        share >= rule.least_effect && gain.min(share) > limits.link * fit.noise
    };
    let fast =
        design.observations.iter().zip(&fit.residuals).filter(|(_, residual)| **residual < 0.0 && is_fast(**residual));
    let fast = fast.map(|(pair, _)| (pair.from, pair.to)).collect();
    let of_round = of_round.iter().map(|link| link.example).collect();
    Finding { suspects, sensitivity: Some(sensitivity), heavy_tail: heavy.is_some(), fast, of_round }
}

/// By how much the other pairs of a pair's round were slower than their hosts explain, as a share: the median of three or more, which
/// a single slow link among them does not move far. 0 if that is no more than noise.
fn slowed_by_round(design: &Design, fit: &Fit, rule: &Rule, pair: (usize, usize)) -> f64 {
    let observed = || design.observations.iter().zip(&fit.residuals);
    let own = observed().find(|(o, _)| (o.from, o.to) == pair).and_then(|(own, _)| own.round);
    let others = observed().filter(|(o, _)| own.is_some() && o.round == own && (o.from, o.to) != pair);
    let mut others: Vec<f64> = others.map(|(_, residual)| *residual).collect();
    let error = MEDIAN_ERROR * fit.noise / (others.len() as f64).sqrt();
    let is_known = others.len() >= FEWEST_OF_ROUND;
    let median = select_median(&mut others).filter(|median| is_known && *median > STANDS_OUT * error);
    median.map_or(0.0, |median| rule.share(median))
}

/// The effect of a host in its role, or of a link, in a fit; positive if worse. `None`: it is none there.
pub fn effect(design: &Design, fit: &Fit, kind: Kind) -> Option<f64> {
    let of_side = |host: usize, side: Side| design.effects[host][side as usize].map(|column| fit.beta[column]);
    match kind {
        Kind::Host { host, role: Role::Sender } => of_side(host, Side::Sender),
        Kind::Host { host, role: Role::Receiver } => of_side(host, Side::Receiver),
        Kind::Host { host, role: Role::Both } => {
            Some(f64::midpoint(of_side(host, Side::Sender)?, of_side(host, Side::Receiver)?))
        }
        Kind::Link { from, to } => {
            let mut observed = design.observations.iter().zip(&fit.residuals);
            observed.find(|(o, _)| (o.from, o.to) == (from, to)).map(|(_, residual)| *residual)
        }
    }
}

/// Hosts with an effect on both sides.
fn hosts(design: &Design) -> usize {
    design.effects.iter().filter(|e| e[0].is_some() && e[1].is_some()).count()
}

/// An effect with its standard error.
#[derive(Clone, Copy)]
struct Effect {
    size: f64,
    error: f64,
}

struct Hosts {
    suspects: Vec<Suspect>,
    /// Median standard error of the effects of one side.
    least_error: Option<f64>,
}

fn slow_hosts(design: &Design, factor: &Factor, fit: &Fit, rule: &Rule, limits: &Limits) -> Hosts {
    // Contrasts with the mean effect of the same side and group; the estimates with the median one.
    let effect = |sides: &[(Side, usize)]| -> Effect {
        let share = 1.0 / sides.len() as f64;
        let mut contrast = vec![0.0; design.columns];
        for (side, column) in sides {
            contrast[*column] += share;
            let others: Vec<usize> = design.side(*side, design.level(*column)).map(|(_, column)| column).collect();
            for other in &others {
                contrast[*other] -= share / others.len() as f64;
            }
        }
        let size = sides.iter().map(|(_, column)| fit.beta[*column]).sum::<f64>() * share;
        Effect { size, error: fit.error * factor.variance(&mut contrast).sqrt() }
    };
    let spread = Side::BOTH.map(|side| {
        let mut sizes: Vec<f64> =
            design.effects.iter().filter_map(|e| e[side as usize]).map(|column| fit.beta[column].abs()).collect();
        if sizes.len() < FEWEST_HOSTS { 0.0 } else { select_median(&mut sizes).unwrap_or(0.0) / QUARTILE }
    });
    let slow = |effect: Effect, spread: f64| {
        rule.share(effect.size) >= rule.least_effect
            && rule.cautious(effect.size) > limits.host * effect.error
            && effect.size > STANDS_OUT * spread
    };
    let mut errors = Vec::new();
    let mut suspects = Vec::new();
    for (host, columns) in design.effects.iter().enumerate() {
        let one = Side::BOTH.map(|side| columns[side as usize].map(|column| effect(&[(side, column)])));
        errors.extend(one.iter().flatten().map(|e| e.error));
        let is_slow = Side::BOTH.map(|side| one[side as usize].is_some_and(|e| slow(e, spread[side as usize])));
        let both = match (columns[0], columns[1]) {
            (Some(sender), Some(receiver)) => Some(effect(&[(Side::Sender, sender), (Side::Receiver, receiver)])),
            _ => None,
        };
        let matters = one.iter().flatten().all(|e| rule.share(e.size) >= rule.least_effect);
        let widest = spread[0].max(spread[1]);
        let named = match (is_slow, both) {
            ([true, true], Some(both)) => Some((Role::Both, both)),
            (_, Some(both)) if matters && slow(both, widest) => Some((Role::Both, both)),
            ([true, _], _) => one[0].map(|e| (Role::Sender, e)),
            ([_, true], _) => one[1].map(|e| (Role::Receiver, e)),
            _ => None,
        };
        if let Some((role, effect)) = named {
            let (shown, pairs, example) = shown_by(design, fit, host, role, effect.size);
            suspects.push(Suspect {
                kind: Kind::Host { host, role },
                worse: rule.share(effect.size),
                low: rule.share(effect.size - limits.interval * effect.error),
                high: rule.share(effect.size + limits.interval * effect.error),
                shown,
                pairs,
                example,
            });
        }
    }
    suspects.sort_by(|a, b| b.worse.total_cmp(&a.worse));
    Hosts { suspects, least_error: select_median(&mut errors) }
}

/// How many of a host's pairs are slower than the model without its effect by half of the effect or more, of how many, and
/// the slowest of them.
fn shown_by(design: &Design, fit: &Fit, host: usize, role: Role, size: f64) -> (usize, usize, (usize, usize)) {
    let (mut shown, mut pairs, mut worst) = (0, 0, f64::NEG_INFINITY);
    let mut example = (0, 0);
    for (observation, residual) in design.observations.iter().zip(&fit.residuals) {
        let as_sender = observation.from == host && role != Role::Receiver;
        let as_receiver = observation.to == host && role != Role::Sender;
        if !as_sender && !as_receiver {
            continue;
        }
        let own = design.effects[host][usize::from(as_receiver)].map_or(0.0, |column| fit.beta[column]);
        pairs += 1;
        shown += usize::from(residual + own >= size / 2.0);
        if residual + own > worst {
            worst = residual + own;
            example = (observation.from, observation.to);
        }
    }
    (shown, pairs, example)
}

fn slow_links(design: &Design, factor: &Factor, fit: &Fit, rule: &Rule, limits: &Limits) -> Vec<Suspect> {
    let mut suspects = Vec::new();
    for ((observation, residual), weight) in design.observations.iter().zip(&fit.residuals).zip(&fit.weights) {
        // The largest factor by which leaving the pair out moves it from its fit is 1 ÷ (1 − leverage).
        if *residual < (1.0 - MOST_LEVERAGE) * rule.least_effect {
            continue;
        }
        if *residual < (1.0 - MOST_LEVERAGE).sqrt() * limits.link * fit.noise {
            continue;
        }
        let mut row = vec![0.0; design.columns];
        observation.columns().for_each(|c| row[c] = 1.0);
        let leverage = factor.variance(&mut row).min(1.0);
        if leverage > MOST_LEVERAGE {
            continue;
        }
        // The residual from the fit to all other pairs (Cook and Weisberg, *Residuals and Influence*, 1982, 2.2).
        let size = residual / (1.0 - weight * leverage);
        // The noise is that of pairs with the usual number of iterations; one that has fewer varies more.
        let fewer = (design.iterations / observation.iterations()).max(1.0).sqrt();
        let error = fit.noise * fewer / (1.0 - leverage).sqrt();
        let own = observation.scatter.map_or(0.0, |s| MEDIAN_ERROR * s.deviation / (s.count as f64).sqrt());
        let half = limits.interval * error.hypot(own);
        if rule.share(size) >= rule.least_effect && rule.cautious(size) > limits.link * error && size > half {
            suspects.push(Suspect {
                kind: Kind::Link { from: observation.from, to: observation.to },
                worse: rule.share(size),
                low: rule.share(size - half),
                high: rule.share(size + half),
                shown: 1,
                pairs: 1,
                example: (observation.from, observation.to),
            });
        }
    }
    suspects.sort_by(|a, b| b.worse.total_cmp(&a.worse));
    suspects
}

// The tail of a survey's noise on its slow side.
//
// A residual of five standard deviations is rare where the noise is normal, and common where it has a heavy tail. So the
// limit for links comes from Student's t whose tail, against its own middle, is as heavy as that of the residuals. Its
// degrees of freedom are those at which the 98th percentile over the 75th is the observed one: a match of quantiles, which
// the slow links themselves do not move far while they are fewer than 2 %.

/// Residuals from which on the tail is looked at: a tail of fewer says nothing.
const FEWEST: usize = 200;

/// The percentile that is compared.
const TAIL: f64 = 0.98;

/// Standard error of that percentile over the scale by the median absolute value, of n normal residuals, times √n: of the
/// percentile √(q(1 − q)) ÷ φ(2.05) = 2.89, of the scale 2.05 · 1.17, together.
const ERROR: f64 = 3.8;

/// Standard errors by which a tail must exceed the normal one to count as heavy.
const EVIDENCE: f64 = 3.0;

/// How far into the tail of heavy-tailed noise the share `p` of the residuals lies, in the residuals' unit. `None` for
/// noise that looks normal, and for few residuals. Residuals are positive on the slow side.
pub fn limit(residuals: &[f64], p: f64) -> Option<f64> {
    if residuals.len() < FEWEST {
        return None;
    }
    let mut sorted = residuals.to_vec();
    quantiles::sort(&mut sorted);
    let centre = quantiles::median(&sorted)?;
    let tail = quantiles::quantile(&sorted, TAIL)? - centre;
    let mut absolute: Vec<f64> = sorted.iter().map(|r| (r - centre).abs()).collect();
    let middle = select_median(&mut absolute).filter(|m| *m > 0.0)?;
    let normal = t_quantile(TAIL, 1e6)?;
    if tail / middle <= (normal + EVIDENCE * ERROR / (residuals.len() as f64).sqrt()) / QUARTILE {
        return None;
    }
    // Skewed noise is wider on its slow side than its middle is.
    let slow = quantiles::quantile(&sorted, 0.75)? - centre;
    let ratio = tail / slow;
    // The ratio falls with the degrees of freedom.
    let of = |freedom: f64| Some(t_quantile(TAIL, freedom)? / t_quantile(0.75, freedom)?);
    let (mut low, mut high): (f64, f64) = (1.0, 200.0);
    for _ in 0..40 {
        let between = (low * high).sqrt();
        if of(between)? > ratio { low = between } else { high = between }
    }
    Some(slow * t_quantile(1.0 - p, low)? / t_quantile(0.75, low)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quantiles of Student's t: a sample without chance.
    fn sample(freedom: f64, count: u32) -> Vec<f64> {
        (0..count).map(|i| t_quantile((f64::from(i) + 0.5) / f64::from(count), freedom).unwrap()).collect()
    }

    #[test]
    fn heavy_tails_are_extrapolated_and_normal_ones_left_alone() {
        assert_eq!(limit(&sample(1e6, 1000), 1e-5), None);
        assert_eq!(limit(&sample(3.0, 150), 1e-5), None, "too few to tell");
        for freedom in [2.0, 3.0, 4.0] {
            let truth = t_quantile(1.0 - 1e-5, freedom).unwrap();
            let found = limit(&sample(freedom, 1000), 1e-5).unwrap();
            assert!((found / truth - 1.0).abs() < 0.1, "{freedom}: {found} for {truth}");
        }
    }
}
