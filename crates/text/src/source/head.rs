//! The first bytes of a file. The detection of the format reads the first bytes once and keeps them for the first
//! reader of the records, so that they are not read again.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use unpadded::{Error, Result};

use super::archive::Bytes;
use super::kind::FailedReader;

/// The maximum number of bytes that the detection reads from the start of a file; smaller in tests.
const MOST: usize = if cfg!(test) { 1 << 20 } else { 1 << 26 };
const PIECE: u64 = 1 << 18;

/// The head of a file: the first bytes, which all steps of the detection read. A `Head` is empty until the file is
/// opened, and after a reader of the records has taken the bytes.
#[derive(Clone, Default)]
pub(crate) struct Head(Arc<Mutex<Option<Opened>>>);

/// An opened file: the first bytes, in pieces, and a reader of the remaining bytes.
struct Opened {
    name: Arc<str>,
    pieces: VecDeque<Arc<[u8]>>,
    size: usize,
    rest: Option<Bytes>,
    /// The findings of the detection, for its later steps.
    found: HashMap<String, Box<dyn Any + Send>>,
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Head")
    }
}

impl Head {
    pub(crate) fn new(name: Arc<str>, rest: Bytes) -> Self {
        Self(Arc::new(Mutex::new(Some(Opened::new(name, rest)))))
    }

    fn with<T>(&self, read: impl FnOnce(&mut Option<Opened>) -> T) -> T {
        read(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a reader of at most [`MOST`] first bytes; `open` is called if the file is not open yet.
    pub(crate) fn sample(
        &self,
        open: impl FnOnce() -> Result<(Arc<str>, Bytes)>,
    ) -> Result<(Arc<str>, Bytes)> {
        let name = self.with(|opened| match opened {
            Some(opened) => Ok::<_, Error>(Arc::clone(&opened.name)),
            None => {
                let (name, rest) = open()?;
                *opened = Some(Opened::new(Arc::clone(&name), rest));
                Ok(name)
            }
        })?;
        Ok((name, Box::new(Excerpt { head: self.clone(), piece: 0, at: 0 })))
    }

    /// Returns the finding `key` of the detection, which `find` makes once while the head has its bytes.
    pub(crate) fn found<T: Any + Send + Clone>(
        &self,
        key: String,
        find: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let kept = self.with(|opened| opened.as_ref()?.found.get(&key)?.downcast_ref().cloned());
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let found = find()?;
        self.with(|opened| opened.as_mut()?.found.insert(key, Box::new(found.clone())));
        Ok(found)
    }

    /// Takes the bytes out of the head and returns a reader of the whole file; returns `None` if the file is not open.
    pub(crate) fn take(&self) -> Option<(Arc<str>, Bytes)> {
        let Opened { name, pieces, rest, .. } = self.with(Option::take)?;
        Some((name, Box::new(HeadReader { pieces, at: 0, rest })))
    }
}

impl Opened {
    fn new(name: Arc<str>, rest: Bytes) -> Self {
        Self { name, pieces: VecDeque::new(), size: 0, rest: Some(rest), found: HashMap::new() }
    }

    /// Returns piece `number` of the head, which is read if necessary; `None` behind the end of the head.
    fn piece(&mut self, number: usize) -> io::Result<Option<Arc<[u8]>>> {
        while self.pieces.len() <= number && self.size < MOST {
            let Some(rest) = &mut self.rest else { break };
            let mut piece = Vec::new();
            let read = rest.take(PIECE).read_to_end(&mut piece);
            self.size += piece.len();
            match read {
                Ok(0) => self.rest = None,
                // The read error is kept: the reader of the records reports the error when it reaches this position.
                Err(e) => {
                    let copy = io::Error::new(e.kind(), e.to_string());
                    self.rest = Some(Box::new(FailedReader(Some(e))));
                    if piece.is_empty() {
                        return Err(copy);
                    }
                }
                Ok(_) => {}
            }
            if !piece.is_empty() {
                self.pieces.push_back(piece.into());
            }
        }
        Ok(self.pieces.get(number).cloned())
    }
}

/// A reader of the head for the detection. The reader gets missing pieces from the file.
struct Excerpt {
    head: Head,
    piece: usize,
    at: usize,
}

impl Read for Excerpt {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let piece =
            self.head.with(|opened| opened.as_mut().map_or(Ok(None), |opened| opened.piece(self.piece)))?;
        let Some(piece) = piece else { return Ok(0) };
        let read = copy(&piece, &mut self.at, into);
        if self.at == piece.len() {
            (self.piece, self.at) = (self.piece + 1, 0);
        }
        Ok(read)
    }
}

/// A reader of the head, whose pieces it drops, and then of the rest of the file.
struct HeadReader {
    pieces: VecDeque<Arc<[u8]>>,
    at: usize,
    rest: Option<Bytes>,
}

impl Read for HeadReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(piece) = self.pieces.front() else {
            return self.rest.as_mut().map_or(Ok(0), |rest| rest.read(into));
        };
        let read = copy(piece, &mut self.at, into);
        if self.at == piece.len() {
            self.at = 0;
            self.pieces.pop_front();
        }
        Ok(read)
    }
}

/// Copies bytes of a piece, from position `at` on, to `into`; advances `at`, and returns the number of copied bytes.
fn copy(piece: &[u8], at: &mut usize, into: &mut [u8]) -> usize {
    let from = piece.get(*at..).unwrap_or_default();
    let read = from.len().min(into.len());
    into[..read].copy_from_slice(&from[..read]);
    *at += read;
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns some bytes, and then an error.
    struct Broken(io::Cursor<Vec<u8>>);

    impl Read for Broken {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.read(into)? {
                0 => Err(io::ErrorKind::InvalidData.into()),
                read => Ok(read),
            }
        }
    }

    #[test]
    fn what_was_looked_at_is_read_again_once() {
        let bytes: Vec<u8> = (0..PIECE as usize * 3 + 7).map(|i| (i % 251) as u8).collect();
        let open =
            || -> Result<(Arc<str>, Bytes)> { Ok(("a".into(), Box::new(io::Cursor::new(bytes.clone())))) };
        let head = Head::default();
        assert!(head.take().is_none());
        for size in [4, PIECE as usize + 1, bytes.len() + 1] {
            let mut found = Vec::new();
            let unopened = || -> Result<(Arc<str>, Bytes)> { Err(Error::new("file", "one open", "two")) };
            let (_, sample) = if size == 4 { head.sample(open) } else { head.sample(unopened) }.unwrap();
            sample.take(size as u64).read_to_end(&mut found).unwrap();
            assert_eq!(found, bytes[..size.min(bytes.len())]);
        }
        let (mut all, (name, mut taken)) = (Vec::new(), head.take().unwrap());
        taken.read_to_end(&mut all).unwrap();
        assert_eq!((&*name, all == bytes, head.take().is_none()), ("a", true, true));
    }

    #[test]
    fn an_error_is_met_where_it_is() {
        let head = Head::new("a".into(), Box::new(Broken(io::Cursor::new(vec![7; 10]))));
        let mut found = Vec::new();
        let unopened = || Err(Error::new("file", "one open", "two"));
        assert!(head.sample(unopened).unwrap().1.read_to_end(&mut found).is_err());
        let fails = |mut reader: Bytes| {
            let mut found = Vec::new();
            assert!(reader.read_to_end(&mut found).is_err() && found == [7; 10]);
        };
        fails(head.sample(unopened).unwrap().1);
        fails(head.take().unwrap().1);
    }
}
