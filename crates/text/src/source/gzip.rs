//! Unpacks gzip files. A gzip file has one or more successive compressed members, and may have zeros behind a member.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;

/// Unpacks a gzip file. Zeros behind a member, as of tapes and `dd`, are ignored; other bytes are an error.
pub(crate) struct Gzip<R> {
    state: State<R>,
    /// The position in the file at which the current member starts.
    start: u64,
    first: bool,
}

enum State<R> {
    Member(GzDecoder<BufReader<CountingReader<R>>>),
    Between(BufReader<CountingReader<R>>),
    Ended,
}

struct CountingReader<R> {
    bytes: R,
    count: u64,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(into)?;
        self.count += read as u64;
        Ok(read)
    }
}

impl<R: Read> Gzip<R> {
    pub(crate) fn new(bytes: R) -> Self {
        let bytes = BufReader::new(CountingReader { bytes, count: 0 });
        Self { state: State::Member(GzDecoder::new(bytes)), start: 0, first: true }
    }

    /// Returns the error for bytes, from position `start` on, that follow a member and are not a gzip member.
    fn foreign(&self) -> io::Error {
        let at = self.start;
        let shown = format!(
            "other bytes behind its end, from byte {at} on: `head -c {at} FILE` gives what comes before"
        );
        io::Error::new(io::ErrorKind::InvalidData, shown)
    }
}

impl<R: Read> Read for Gzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Member(mut member) => {
                    let read = member.read(into);
                    // The bytes begin like a gzip member, but are not the header of a gzip member.
                    let no_header = matches!(&read, Err(e) if e.kind() == io::ErrorKind::InvalidInput);
                    if !self.first && no_header && member.header().is_none() {
                        return Err(self.foreign());
                    }
                    if !matches!(read, Ok(0)) {
                        self.state = State::Member(member);
                        return read;
                    }
                    self.state = State::Between(member.into_inner());
                }
                State::Between(mut bytes) => {
                    let waiting = match bytes.fill_buf() {
                        Ok(waiting) => waiting,
                        Err(e) => {
                            self.state = State::Between(bytes);
                            return Err(e);
                        }
                    };
                    let (end, next) = (waiting.is_empty(), waiting.iter().position(|&byte| byte != 0));
                    let zeros = next.unwrap_or(waiting.len());
                    let is_member = next.and_then(|at| waiting.get(at)) == Some(&0x1f);
                    bytes.consume(zeros);
                    if end {
                        return Ok(0);
                    }
                    if next.is_none() {
                        self.state = State::Between(bytes);
                        continue;
                    }
                    self.start = bytes.get_ref().count.saturating_sub(bytes.buffer().len() as u64);
                    self.first = false;
                    if !is_member {
                        return Err(self.foreign());
                    }
                    self.state = State::Member(GzDecoder::new(bytes));
                }
                State::Ended => return Ok(0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn unpacked(bytes: &[u8]) -> Result<String, String> {
        let mut text = String::new();
        Gzip::new(bytes).read_to_string(&mut text).map_err(|e| e.to_string())?;
        Ok(text)
    }

    #[test]
    fn zeros_behind_it_are_padding_and_other_bytes_an_error() {
        let (a, b) = (packed(b"a"), packed(b"b"));
        assert_eq!(unpacked(&a), Ok("a".into()));
        assert_eq!(unpacked(&[&a[..], &b].concat()), Ok("ab".into()));
        assert_eq!(unpacked(&[&a[..], &[0; 20_000]].concat()), Ok("a".into()));
        assert_eq!(unpacked(&[&a[..], &[0; 512], &b].concat()), Ok("ab".into()));
        for behind in [&b"more"[..], b"\x1f and more than a header", b"\0\0\x00x"] {
            let at = a.len() + behind.iter().take_while(|&&byte| byte == 0).count();
            let shown = unpacked(&[&a[..], behind].concat()).unwrap_err();
            assert!(shown.starts_with(&format!("other bytes behind its end, from byte {at} on")), "{shown}");
        }
        // A member that is cut short is an error, and not ignored as padding.
        assert!(unpacked(&[&a[..], &b[..b.len() - 3]].concat()).is_err());
        assert!(unpacked(&a[..a.len() - 3]).is_err());
    }
}
