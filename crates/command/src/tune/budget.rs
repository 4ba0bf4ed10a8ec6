//! Parsing and display of time budgets, such as `90s`, `30m`, `2h` or `1h30m`.

use std::time::Duration;

/// The longest allowed time budget, in seconds: a year of 366 days.
const MOST: u64 = 366 * 24 * 3600;

pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a time, as 90s, 30m, 2h or 1h30m".to_owned();
    let (mut seconds, mut rest) = (0u64, text.trim());
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, behind) = rest.split_at_checked(digits).ok_or_else(wrong)?;
        let unit = behind.chars().next().ok_or_else(wrong)?;
        let factor = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 24 * 3600,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        seconds = seconds.saturating_add(number.saturating_mul(factor));
        rest = behind.get(unit.len_utf8()..).unwrap_or_default();
    }
    match seconds {
        0 => Err(format!("{}, above 0", wrong())),
        1..=MOST => Ok(Duration::from_secs(seconds)),
        _ => Err("expected at most 366d".to_owned()),
    }
}

pub(super) fn shown(seconds: f64) -> String {
    match seconds.max(0.0) {
        s @ 0.0..99.5 => format!("{s:.0} s"),
        s @ 99.5..5970.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_have_units() {
        let seconds = |text| parse(text).map(|budget| budget.as_secs());
        assert_eq!(["90s", "30m", "2h", "1h30m", " 1d "].map(seconds), [90, 1800, 7200, 5400, 86400].map(Ok));
        for wrong in ["", "30", "m", "-3m", "1.5h", "3x", "0s", "999999999999999999999h", "9999d", "1hä"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!([5.0, 600.0, 7200.0].map(shown), ["5 s", "10 min", "2.0 h"]);
    }
}
