//! Dates as people write them, for `translate`: drawn from a seed, in the forms of letters and of forms to fill in, each with its
//! day in ISO 8601.
//!
//! The days are from 1950 to 2049. A year may be written by its last two digits: 50 to 99 mean 1950 to 1999, 00 to 49 mean 2000
//! to 2049. In dates of numbers alone whose year comes last, either day or month may be first, but only if the day is above 12.
#[path = "draws.rs"]
mod draws;

use draws::Draws;
use unpadded::data::Fingerprint;
use unpadded_text::Pair;

/// The part of the data that a day belongs to; each day belongs to one part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Part {
    Train,
    Dev,
    Test,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const ORDINALS: [&str; 20] = [
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
    "twentieth",
];

/// A day by its number, from 0 for 1 January 1950 on.
struct Day {
    year: usize,
    month: usize,
    day: usize,
    weekday: usize,
}

/// The number of days.
const DAYS: usize = 36_525;

impl Day {
    fn new(number: usize) -> Self {
        let leap =
            |year: usize| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let weekday = number % 7; // Sunday is 0, as 1 January 1950 was a Sunday
        let (mut year, mut left) = (1950, number);
        while left >= 365 + usize::from(leap(year)) {
            left -= 365 + usize::from(leap(year));
            year += 1;
        }
        let mut month = 0;
        for length in [31, 28 + usize::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
            if left < length {
                break;
            }
            left -= length;
            month += 1;
        }
        Self { year, month: month + 1, day: left + 1, weekday }
    }

    fn iso(&self) -> String {
        format!("{}-{:02}-{:02}", self.year, self.month, self.day)
    }

    /// Such as 3rd.
    fn ordinal(&self) -> String {
        let ending = match self.day {
            1 | 21 | 31 => "st",
            2 | 22 => "nd",
            3 | 23 => "rd",
            _ => "th",
        };
        format!("{}{ending}", self.day)
    }

    /// Such as twenty-third.
    fn in_words(&self) -> String {
        let ordinal = |number: usize| ORDINALS[number - 1];
        match self.day {
            30 => "thirtieth".to_owned(),
            21..30 => format!("twenty-{}", ordinal(self.day - 20)),
            31 => "thirty-first".to_owned(),
            day => ordinal(day).to_owned(),
        }
    }

    /// Writes the date in a randomly drawn form.
    fn written(&self, draws: &mut Draws) -> String {
        let Day { year, month, day, weekday } = *self;
        let (th, words) = (self.ordinal(), self.in_words());
        let two = year % 100;
        let full = MONTHS[month - 1];
        let short = &full[..3];
        let dotted = format!("{short}{}", if month == 5 { "" } else { "." });
        let name = [full, full, short, &dotted][draws.one_of(0..4)];
        let comma = ["", ","][draws.one_of(0..2)];
        let weekday = [WEEKDAYS[weekday], &WEEKDAYS[weekday][..3]][draws.one_of(0..2)];
        let mark = ["/", ".", "-", " "][draws.one_of(0..4)];
        let (d, m) = match draws.one_of(0..2) {
            0 => (day.to_string(), month.to_string()),
            _ => (format!("{day:02}"), format!("{month:02}")),
        };
        let forms = if day > 12 { 24 } else { 20 };
        match draws.one_of(0..forms) {
            0 => format!("{name} {day}, {year}"),
            1 => format!("{name} {th}{comma} {year}"),
            2 => format!("{day} {name} {year}"),
            3 => format!("{th} {name} {year}"),
            4 => format!("{th} of {full}{comma} {year}"),
            5 => format!("the {th} of {full}{comma} {year}"),
            6 => format!("{full} the {words}, {year}"),
            7 => format!("{words} of {full} {year}"),
            8 => format!("{weekday}, {name} {day}, {year}"),
            9 => format!("{weekday}{comma} {day} {name} {year}"),
            10 => format!("{weekday} the {th} of {full} {year}"),
            11 => format!("{day} {short} '{two:02}"),
            12 => format!("{name} {day} '{two:02}"),
            13 => format!("{day}-{short}-{year}"),
            14 => format!("{d}-{short}-{two:02}"),
            15 => format!("{year}{mark}{month:02}{mark}{day:02}"),
            16 => format!("{year}{month:02}{day:02}"),
            17 => format!("{year}, {name} {day}"),
            18 => format!("{year}-{short}-{d}"),
            19 => self.iso(),
            20 => format!("{m}/{d}/{year}"),
            21 => format!("{d}{mark}{m}{mark}{year}"),
            22 => format!("{m}/{d}/{two:02}"),
            _ => format!("{d}.{m}.{two:02}"),
        }
    }
}

/// Returns `count` written dates, each with its meaning.
pub(crate) fn dates(seed: u64, count: usize, part: Part) -> Vec<Pair> {
    let mut draws = Draws::new(seed);
    let drawn = |number: usize| match Fingerprint::default().number(number as u64).finish() % 10 {
        0 => Part::Test,
        1 => Part::Dev,
        _ => Part::Train,
    };
    let mut found = Vec::with_capacity(count);
    while found.len() < count {
        let number = draws.one_of(0..DAYS);
        if drawn(number) != part {
            continue;
        }
        let day = Day::new(number);
        let written = day.written(&mut draws);
        let source = match draws.one_of(0..10) {
            0 => written.to_uppercase(),
            1 => written.to_lowercase(),
            _ => written,
        };
        found.push(Pair::new(source, day.iso()));
    }
    found
}

#[test]
fn days_are_those_of_the_calendar() {
    for (number, iso, weekday) in [
        (0, "1950-01-01", "Sunday"),
        (58, "1950-02-28", "Tuesday"),
        (59, "1950-03-01", "Wednesday"),
        (7_305 + 10_957, "2000-01-01", "Saturday"),
        (18_321, "2000-02-29", "Tuesday"),
        (DAYS - 1, "2049-12-31", "Friday"),
    ] {
        let day = Day::new(number);
        assert_eq!((day.iso().as_str(), WEEKDAYS[day.weekday]), (iso, weekday), "{number}");
    }
    let words = |day| Day { year: 2000, month: 1, day, weekday: 0 }.in_words();
    assert_eq!(
        [1, 20, 21, 29, 30, 31].map(words).join(" "),
        "first twentieth twenty-first twenty-ninth thirtieth thirty-first"
    );
}

#[test]
fn no_day_is_in_two_parts_and_no_writing_means_two() {
    let parts = [Part::Train, Part::Dev, Part::Test].map(|part| dates(5, 4_000, part));
    let mut meant = std::collections::HashMap::new();
    for (i, part) in parts.iter().enumerate() {
        for Pair { source, target, .. } in part {
            let (day, first) = meant.entry(target.clone()).or_insert_with(|| (i, source.clone()));
            assert_eq!(*day, i, "{target}: {first}, {source}");
        }
    }
    let mut days = std::collections::HashMap::new();
    for Pair { source, target, .. } in parts.iter().flatten() {
        assert_eq!(days.entry(source.clone()).or_insert(target), &target, "{source}");
    }
    assert!(dates(5, 50, Part::Dev) == parts[1][..50] && dates(6, 50, Part::Dev) != parts[1][..50]);
}
