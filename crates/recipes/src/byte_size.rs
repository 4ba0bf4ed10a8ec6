//! Sizes of memory with a unit, such as `4 GB`.

use std::fmt;
use std::str::FromStr;

use unpadded::{Error, memory};

/// A size of memory in bytes. As text, a size has a unit: `500 MB` (1 MB is 1,000,000 bytes), `1.5 GB`, `2 GiB` (1 GiB is 2³⁰ bytes).
///
/// ```
/// use unpadded_recipes::ByteSize;
/// let size: ByteSize = "1.5 GB".parse()?;
/// assert_eq!((size.bytes(), size.to_string()), (1_500_000_000, "1500 MB".to_owned()));
/// assert_eq!("2 GiB".parse::<ByteSize>()?.to_string(), "2147483648 B");
/// assert!("2".parse::<ByteSize>().is_err());
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(u64);

impl ByteSize {
    pub(super) const EXPECTED: &str = "a size with its unit, as \"500 MB\" or \"4 GB\"";

    /// Returns the size in bytes, at least 1.
    pub fn bytes(self) -> u64 {
        self.0
    }

    /// Returns the size of a number of bytes; 0 counts as 1.
    pub fn of_bytes(bytes: u64) -> Self {
        Self(bytes.max(1))
    }

    /// Returns 80 % of the memory of the machine, or 80 % of the container's memory limit if this limit is smaller. Returns
    /// `None` if the operating system reports neither.
    pub fn of_machine() -> Option<Self> {
        memory::total().map(|bytes| Self::of_bytes(bytes / 10 * 8))
    }
}

impl FromStr for ByteSize {
    type Err = Error;

    #[track_caller]
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::new("size", Self::EXPECTED, format!("`{text}`"));
        let (number, unit) =
            text.trim().split_at(text.trim().find(|c: char| c.is_alphabetic()).ok_or_else(wrong)?);
        let unit = unit.to_lowercase();
        let (prefix, base) = match unit.strip_suffix("ib") {
            Some(prefix) => (prefix, 1024u64),
            None => (unit.strip_suffix('b').unwrap_or(&unit), 1000),
        };
        let power = ["", "k", "m", "g", "t"].into_iter().position(|known| known == prefix);
        let power = power.filter(|power| base == 1000 || *power > 0).ok_or_else(wrong)?;
        let unit = base.pow(power as u32);
        let (whole, decimals) = number.trim().split_once('.').unwrap_or((number.trim(), "0"));
        let digits =
            |text: &str| !text.is_empty() && text.len() <= 15 && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(decimals) {
            return Err(wrong());
        }
        let parse = |text: &str| text.parse::<u128>().map_err(|_| wrong());
        let share = parse(decimals)? * u128::from(unit) / 10u128.pow(decimals.len() as u32);
        let bytes = u64::try_from(parse(whole)? * u128::from(unit) + share).map_err(|_| wrong())?;
        if bytes == 0 {
            Err(Error::new("size", "more than 0 bytes", format!("`{text}`")))
        } else {
            Ok(Self(bytes))
        }
    }
}

/// Formats the size exactly, in the largest decimal unit that divides the size without a remainder.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];
        let (unit, bytes) =
            units.into_iter().find(|(_, bytes)| self.0.is_multiple_of(*bytes)).unwrap_or(("B", 1));
        write!(f, "{} {unit}", self.0 / bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let bytes = |text: &str| text.parse::<ByteSize>().ok().map(ByteSize::bytes);
        for (text, expected) in [
            ("4 GB", 4_000_000_000),
            ("4gb", 4_000_000_000),
            (" 1.25 kB ", 1_250),
            ("0.5 GiB", 1 << 29),
            ("300 b", 300),
            ("16G", 16_000_000_000),
        ] {
            assert_eq!(bytes(text), Some(expected), "{text}");
            let size = ByteSize(expected);
            assert_eq!(size.to_string().parse::<ByteSize>().unwrap(), size);
        }
        for wrong in
            ["", "4", "GB", "-4 GB", "4 XB", "0 GB", "1e3 MB", "4 GB 2", "99999999999 TB", "1..5 GB", "4 µB"]
        {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        let machine = ByteSize::of_machine();
        assert!(
            !cfg!(target_os = "linux") || machine.is_some_and(|size| size.bytes() > 1 << 20),
            "{machine:?}"
        );
    }
}
