//! netperf's global options: those before `--`.

use std::time::Duration;

use netcore::spec::Family;

use super::words::{self, Getopt, Item, Pair, both, first};

/// The letters of the options; a colon after one says that it takes a value.
pub const LETTERS: &str = "A:a:b:B:CcdD:f:F:H:hi:I:jk:K:l:L:n:NO:o:p:P:rSs:t:T:v:VW:w:y:Y:Z:46";

/// When a test ends (`-l`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// Zero: until it is stopped.
    Time(Duration),
    /// Bytes, or transactions.
    Count(u64),
}

/// The iterations until a result is confident (`-i`, `-I`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    pub most: u32,
    pub least: u32,
    /// Per cent.
    pub level: u32,
    /// Full width of the interval relative to the mean.
    pub width: f64,
    /// Whether only the result counts, and not the CPU (`-r`).
    pub result_only: bool,
}

/// The options before `--`.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of the command line")]
pub struct Globals {
    pub host: Option<String>,
    /// IP version of the control connection and, unless the test says otherwise, of the data.
    pub family: Family,
    pub port: u16,
    pub local_port: Option<u16>,
    /// Local address of the control connection (`-L`).
    pub local: Option<String>,
    pub test: String,
    pub length: Length,
    pub verbosity: i64,
    pub headers: bool,
    /// `None`: by the test.
    pub unit: Option<char>,
    /// Between interim results; zero: none.
    pub interim: Duration,
    /// Whether latency is collected for itself (`-j`).
    pub statistics: bool,
    pub goal: Option<Goal>,
    pub local_cpu: bool,
    pub remote_cpu: bool,
    /// Between the set-up and the load (`-s`).
    pub pause: Duration,
    pub keepalive: bool,
    pub service: Pair<u8>,
    pub priority: Pair<u32>,
    pub cpu: Pair<u32>,
    pub fill: Pair<String>,
    pub tag: Option<String>,
    pub alignment: Pair<u64>,
    pub offset: Pair<u64>,
    pub ring: Pair<u64>,
    pub passphrase: Option<String>,
    pub no_control: bool,
    /// Lines for standard output about options that netperf as distributions build it does not have either.
    pub remarks: Vec<String>,
}

impl Default for Globals {
    fn default() -> Self {
        Self {
            host: None,
            family: Family::Any,
            port: 12_865,
            local_port: None,
            local: None,
            test: "TCP_STREAM".to_owned(),
            length: Length::Time(Duration::from_secs(10)),
            verbosity: 1,
            headers: true,
            unit: None,
            interim: Duration::ZERO,
            statistics: false,
            goal: None,
            local_cpu: false,
            remote_cpu: false,
            pause: Duration::ZERO,
            keepalive: false,
            service: Pair::default(),
            priority: Pair::default(),
            cpu: Pair::default(),
            fill: Pair::default(),
            tag: None,
            alignment: Pair::default(),
            offset: Pair::default(),
            ring: Pair::default(),
            passphrase: None,
            no_control: false,
            remarks: Vec::new(),
        }
    }
}

/// Why the options are not a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// `-h`, or a mistake in the options: usage on standard error, exit 1.
    Usage(Option<Item>),
    /// `-V`: the version, exit 0.
    Version,
    /// `-h` after `--`: usage of the tests on standard output, exit 1.
    TestUsage,
    /// `?` as a selection: the names of the selectors, exit 1.
    Names { one_per_line: bool },
    /// A value that cannot be used, as a sentence: exit 255.
    Wrong(String),
}

/// The error of an option's value.
pub fn wrong(letter: char) -> impl Fn(String) -> Stop {
    move |why| Stop::Wrong(format!("-{letter}: {why}"))
}

/// Reads the words before `--`.
pub fn parse(words: &[String]) -> Result<Globals, Stop> {
    let mut globals = Globals::default();
    let mut goal = Goal::NONE;
    let mut reading = Getopt::new(words, LETTERS);
    while let Some(item) = reading.next_item() {
        let Item::Option(letter, value) = item else { return Err(Stop::Usage(Some(item))) };
        let text = value.unwrap_or_default();
        match letter {
            'h' => return Err(Stop::Usage(None)),
            'V' => return Err(Stop::Version),
            'c' | 'C' => {
                // A rate, which netperf needs for methods that must be calibrated.
                reading.take_if(|word| word.starts_with(|c: char| c.is_ascii_digit()));
                *(if letter == 'c' { &mut globals.local_cpu } else { &mut globals.remote_cpu }) = true;
            }
            'i' => goal.iterations(&text).map_err(wrong(letter))?,
            'I' => goal.interval(&text).map_err(wrong(letter))?,
            'r' => goal.result_only = true,
            _ => option(&mut globals, letter, &text).map_err(wrong(letter))?,
        }
    }
    globals.goal = (goal.most > 1).then(|| Goal { most: goal.most.max(goal.least), ..goal });
    Ok(globals)
}

fn option(out: &mut Globals, letter: char, text: &str) -> Result<(), String> {
    match letter {
        '4' => out.family = Family::V4,
        '6' => out.family = Family::V6,
        'a' => set_powers(&mut out.alignment, text)?,
        'b' => out.remarks.push("Packet burst size is not compiled in. ".to_owned()),
        'B' => out.tag = Some(text.to_owned()),
        'D' => out.interim = interim(text)?,
        'f' => out.unit = text.chars().next(),
        'F' => out.fill.set(first(text), |path| Ok(path.to_owned()))?,
        'H' | 'L' => {
            let (name, family) = first(text);
            let place = if letter == 'H' { &mut out.host } else { &mut out.local };
            *place = name.map(str::to_owned).or(place.take());
            if let Some(family) = family {
                out.family = words::family(family)?;
            }
        }
        'j' => out.statistics = true,
        'k' | 'K' => out.remarks.push("I don't know how to get dirty.".to_owned()),
        'l' => out.length = length(text)?,
        'N' => out.no_control = true,
        'o' => out.offset.set(both(text), words::size)?,
        'p' => {
            let (port, local) = first(text);
            out.port = port.map_or(Ok(out.port), words::port)?;
            out.local_port = local.map(words::port).transpose()?;
        }
        'P' => out.headers = words::number(text)? != 0,
        's' => out.pause = words::seconds(text)?,
        'S' => out.keepalive = true,
        't' => out.test = text.to_ascii_uppercase(),
        'T' => out.cpu.set(both(text), |cpu| cpu.parse().map_err(|_| format!("`{cpu}` is not the number of a CPU")))?,
        'v' => out.verbosity = words::number(text)?,
        'w' => out.remarks.push("Packet rate control is not compiled in.".to_owned()),
        'W' => out.ring.set(both(text), words::size)?,
        'y' => out.priority.set(both(text), |text| text.parse().map_err(|_| format!("`{text}` is not a priority")))?,
        'Y' => out.service.set(both(text), words::type_of_service)?,
        'Z' => out.passphrase = Some(text.to_owned()),
        // Alignment and offset of the far end's buffers, the number of CPUs, and more messages for a developer.
        _ => {}
    }
    Ok(())
}

fn set_powers(pair: &mut Pair<u64>, text: &str) -> Result<(), String> {
    pair.set(both(text), |text| {
        let power = words::size(text)?;
        if power.is_power_of_two() { Ok(power) } else { Err(format!("`{text}` is not a power of two")) }
    })
}

/// The time between interim results. A negative number asks netperf for exact intervals; ours always are. The second value, a
/// guess of the work in an interval, has no use here.
fn interim(text: &str) -> Result<Duration, String> {
    let (time, _) = first(text);
    let time = time.map_or(Ok(Duration::ZERO), |time| words::seconds(time.trim_start_matches('-')))?;
    Ok(if time.is_zero() { Duration::from_secs(1) } else { time })
}

fn length(text: &str) -> Result<Length, String> {
    if let Some(count) = text.trim().strip_prefix('-') {
        let count = words::size(count)?;
        return Ok(if count == 0 { Length::Time(Duration::ZERO) } else { Length::Count(count) });
    }
    // A fraction of a second is ours: netperf runs until it is stopped.
    match words::size(text) {
        Ok(seconds) => Ok(Length::Time(Duration::from_secs(seconds))),
        Err(why) => words::seconds(text).map(Length::Time).map_err(|_| why),
    }
}

/// netperf runs no fewer and no more iterations for a confidence interval.
const ITERATIONS: std::ops::RangeInclusive<u32> = 3..=30;

/// As `-i`, `-I` and `-r` set it in the order of their reading.
impl Goal {
    const NONE: Self = Self { most: 1, least: 1, level: 0, width: 0.0, result_only: false };

    fn iterations(&mut self, text: &str) -> Result<(), String> {
        let (most, least) = both(text);
        let count = |text: &str| words::size(text).map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let most = most.map_or(Ok(self.most), count)?;
        let least = least.map_or(Ok(self.least), count)?;
        self.least = least.clamp(*ITERATIONS.start(), *ITERATIONS.end());
        self.most = most.max(least).clamp(*ITERATIONS.start(), *ITERATIONS.end());
        if self.level == 0 {
            self.level = 99;
        }
        if self.width == 0.0 {
            self.width = 0.05;
        }
        Ok(())
    }

    fn interval(&mut self, text: &str) -> Result<(), String> {
        let (level, width) = both(text);
        if let Some(level) = level {
            let known = [95, 99].into_iter().find(|known| words::number(level) == Ok(i64::from(*known)));
            self.level = known.ok_or("only 95 and 99 are possible")?;
        }
        if let Some(width) = width {
            self.width =
                words::seconds(width).map_err(|_| format!("`{width}` is not a width in per cent"))?.as_secs_f64()
                    / 100.0;
        }
        if self.least == 1 {
            self.least = 3;
        }
        if self.most == 1 {
            self.most = 10;
        }
        if self.level == 0 {
            self.level = 99;
        }
        if self.width == 0.0 {
            self.width = 0.05;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Globals, Stop> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn flents_options_are_read() {
        let line = "-P 0 -v 0 -D -0.20 -4 -Y 0x20,0x20 -H host -p 12866 -t tcp_maerts -l 60 -F /dev/urandom -f m -L 10.0.0.1,4";
        let globals = read(line).unwrap();
        let expected = Globals {
            host: Some("host".to_owned()),
            family: Family::V4,
            port: 12_866,
            local: Some("10.0.0.1".to_owned()),
            test: "TCP_MAERTS".to_owned(),
            length: Length::Time(Duration::from_mins(1)),
            verbosity: 0,
            headers: false,
            unit: Some('m'),
            interim: Duration::from_millis(200),
            service: Pair { local: Some(0x20), remote: Some(0x20) },
            fill: Pair { local: Some("/dev/urandom".to_owned()), remote: None },
            ..Globals::default()
        };
        assert_eq!(globals, expected);
    }

    #[test]
    fn the_default_is_ten_seconds_to_the_well_known_port() {
        let globals = read("operand").unwrap();
        assert_eq!(globals, Globals::default());
        assert_eq!((globals.port, globals.length), (12_865, Length::Time(Duration::from_secs(10))));
    }

    #[test]
    fn a_rate_after_cpu_options_is_taken() {
        let globals = read("-c 100 -C -l -100M -t x").unwrap();
        assert!(globals.local_cpu && globals.remote_cpu);
        assert_eq!(globals.length, Length::Count(100 << 20));
        assert_eq!(globals.test, "X");
        assert_eq!(read("-l 0.3").unwrap().length, Length::Time(Duration::from_millis(300)));
    }

    #[test]
    fn confidence_has_netperfs_limits() {
        let goal = |line| read(line).unwrap().goal.map(|g| (g.most, g.least, g.level, g.width));
        assert_eq!(goal(""), None);
        assert_eq!(goal("-i 5,1"), Some((5, 3, 99, 0.05)));
        assert_eq!(goal("-i 100"), Some((30, 30, 99, 0.05)));
        assert_eq!(goal("-i 2,7"), Some((7, 7, 99, 0.05)));
        assert_eq!(goal("-I 95,5"), Some((10, 3, 95, 0.05)));
        assert_eq!(goal("-I 99"), Some((10, 3, 99, 0.99)));
        assert_eq!(goal("-i 5 -I 99,50"), Some((5, 5, 99, 0.5)));
        assert_eq!(goal("-I 95, -i 30,4"), Some((30, 4, 95, 0.05)));
        assert!(read("-I 95,1 -r").unwrap().goal.unwrap().result_only);
    }

    #[test]
    fn wrong_values_name_the_option() {
        for (line, part) in [
            ("-I 90", "-I: only 95 and 99"),
            ("-l x", "-l: `x` is not a number"),
            ("-p 70000", "-p: `70000` is not a port"),
            ("-Y fast", "-Y: `fast` is not a type of service"),
            ("-a 3", "-a: `3` is not a power of two"),
            ("-H h,x", "-H: `x` is not an address family"),
        ] {
            match read(line).unwrap_err() {
                Stop::Wrong(why) => assert!(why.contains(part), "{line}: {why}"),
                other => panic!("{line}: {other:?}"),
            }
        }
        assert_eq!(read("-Q"), Err(Stop::Usage(Some(Item::Unknown('Q')))));
        assert_eq!(read("-h"), Err(Stop::Usage(None)));
        assert_eq!(read("-V"), Err(Stop::Version));
    }

    #[test]
    fn options_that_distributions_leave_out_are_remarked() {
        let globals = read("-b 10G -w 1 -k 1").unwrap();
        assert_eq!(globals.remarks.len(), 3);
        assert!(globals.remarks[0].contains("Packet burst size is not compiled in"));
    }
}
