//! OpenMetrics and Prometheus text: `name{label="value"} number [timestamp]`.

use super::{
    Bits, Kind, Value,
    builder::{Builder, clip},
};
use crate::error::ParseError;
use std::{borrow::Cow, collections::HashMap};

pub fn looks_like(lines: &[&str]) -> bool {
    let comment = |l: &&str| ["# TYPE ", "# HELP ", "# UNIT ", "# EOF"].iter().any(|p| l.starts_with(p));
    lines.iter().any(comment)
        || lines.iter().all(|l| l.contains('{') && sample(l).is_some_and(|(_, v, _)| Value::parse(v).is_some()))
}

/// Splits a sample line into series, value and rest.
fn sample(line: &str) -> Option<(&str, &str, &str)> {
    let (mut quoted, mut escaped, mut open) = (false, false, false);
    // Labels may contain blanks, braces and escaped quotes.
    let mut end = line.len();
    for (at, c) in line.bytes().enumerate() {
        match c {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' if !quoted => open = true,
            b'}' if !quoted => open = false,
            b' ' | b'\t' if !quoted && !open => {
                end = at;
                break;
            }
            _ => {}
        }
    }
    let (series, rest) = (line.get(..end)?, line.get(end..)?.trim_start());
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    (!series.is_empty() && !rest.is_empty()).then(|| (series, &rest[..end], &rest[end..]))
}

/// Reads the samples. `# TYPE` names the gauges; a summary's quantiles and `_created` are gauges, too.
pub fn read(b: &mut Builder<'_>) -> Result<(), ParseError> {
    let source = b.source.clone();
    let mut types: HashMap<&str, &str> = HashMap::new();
    for (number, line) in b.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            if let Some((name, ty)) = rest.trim().split_once(' ') {
                types.insert(name, ty.trim());
            }
            continue;
        }
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let Some((series, digits, _)) = sample(line) else {
            return Err(ParseError::new(number, format!("expected `name value`, found `{}`", clip(line))));
        };
        // These cannot be subtracted.
        if matches!(digits.trim_start_matches(['+', '-']).to_ascii_lowercase().as_str(), "nan" | "inf") {
            continue;
        }
        let name = series.split('{').next().unwrap_or(series);
        let kind = kind(name, series, &types);
        b.decimal(&source, None, canonical(series), digits, kind)?;
    }
    Ok(())
}

fn kind(name: &str, series: &str, types: &HashMap<&str, &str>) -> Kind {
    let family = |suffix: &str| name.strip_suffix(suffix).and_then(|stem| types.get(stem)).copied();
    let counts = ["_total", "_bucket", "_count", "_sum"].into_iter().find_map(family);
    match types.get(name).copied().or(counts) {
        Some("gauge" | "info" | "stateset" | "gaugehistogram") => Kind::Gauge,
        Some("summary") if series.contains("quantile=") => Kind::Gauge,
        Some("counter" | "histogram" | "summary") => Kind::Counter(Bits::Unknown),
        None if family("_created").is_some() || family("_info").is_some() => Kind::Gauge,
        _ => Kind::Number,
    }
}

/// The series with its labels sorted, because exporters do not promise an order.
fn canonical(series: &str) -> Cow<'_, str> {
    let Some((name, labels)) = series.split_once('{') else { return Cow::Borrowed(series) };
    let Some(labels) = labels.trim_end().strip_suffix('}') else { return Cow::Borrowed(series) };
    let mut parts: Vec<&str> = Vec::new();
    let (mut start, mut quoted, mut escaped) = (0, false, false);
    for (at, c) in labels.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ',' if !quoted => {
                parts.push(labels[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(labels[start..].trim());
    parts.retain(|p| !p.is_empty());
    if parts.is_sorted() && !series.contains(", ") {
        return Cow::Borrowed(series);
    }
    parts.sort_unstable();
    Cow::Owned(format!("{}{{{}}}", name.trim_end(), parts.join(",")))
}
