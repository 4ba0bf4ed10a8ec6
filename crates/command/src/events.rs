//! Event files for TensorBoard: the numbers and texts of a training, each with its step.
//!
//! An event file is a list of records. A record is `length: u64, masked CRC-32C of the length: u32, bytes, masked CRC-32C of
//! the bytes: u32`, little endian (TensorFlow's `record_writer.cc`). The bytes are a Protocol Buffers message `Event`
//! (`tensorflow/core/util/event.proto`, `framework/summary.proto`, `framework/tensor.proto`). The first event of a file
//! contains the version of the format. Scalars are written as `simple_value`, which every reader supports; TensorBoard
//! converts a `simple_value` to a tensor.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A writer of one event file. Events stay in memory until [`Events::flush`] is called or the buffer is full.
#[derive(Debug)]
pub(crate) struct Events {
    out: BufWriter<File>,
}

impl Events {
    /// The suffix of the names of event files that this program writes.
    pub(crate) const ENDING: &str = ".unpadded";

    /// Creates an event file. TensorBoard reads all event files of a folder as one training, so others are kept.
    pub(crate) fn create(folder: &Path) -> io::Result<Events> {
        fs::create_dir_all(folder)?;
        let (now, host, process) = (since_1970(), host(), std::process::id());
        let mut count = 0;
        let file = loop {
            // TensorBoard reads the files of a folder in the order of their names, so the name contains the time.
            let name =
                format!("events.out.tfevents.{:010}.{host}.{process}.{count}{}", now.as_secs(), Self::ENDING);
            let path = folder.join(name);
            match File::options().write(true).create_new(true).open(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => count += 1,
                made => break made?,
            }
        };
        let mut events = Events { out: BufWriter::new(file) };
        events.event(|event| event.bytes(3, b"brain.Event:2"))?;
        events.flush()?;
        Ok(events)
    }

    /// Writes a number, as f32, for a step. TensorBoard groups tags such as `loss/train` by the text before the `/`.
    pub(crate) fn scalar(&mut self, step: u64, tag: &str, value: f64) -> io::Result<()> {
        self.value(step, tag, |entry| entry.f32(2, value as f32))
    }

    /// Writes a Markdown text for a step; TensorBoard shows the text in its tab Text.
    pub(crate) fn text(&mut self, step: u64, tag: &str, markdown: &str) -> io::Result<()> {
        const STRING: u64 = 7; // DT_STRING
        const TENSOR: u64 = 2; // DATA_CLASS_TENSOR
        self.value(step, tag, |entry| {
            entry.message(8, |tensor| {
                tensor.number(1, STRING);
                tensor.bytes(2, &[]); // a shape without dimensions
                tensor.bytes(8, markdown.as_bytes());
            });
            entry.message(9, |metadata| {
                metadata.message(1, |plugin| plugin.bytes(1, b"text"));
                metadata.number(4, TENSOR);
            });
        })
    }

    /// Writes the buffered events to the file; TensorBoard shows the events within seconds.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn value(&mut self, step: u64, tag: &str, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        self.event(|event| {
            event.number(2, step);
            event.message(5, |summary| {
                summary.message(1, |entry| {
                    entry.bytes(1, tag.as_bytes());
                    fill(entry);
                });
            });
        })
    }

    fn event(&mut self, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        let mut event = Message::default();
        event.f64(1, since_1970().as_secs_f64());
        fill(&mut event);
        let length = (event.0.len() as u64).to_le_bytes();
        self.out.write_all(&length)?;
        self.out.write_all(&masked(&length).to_le_bytes())?;
        self.out.write_all(&event.0)?;
        self.out.write_all(&masked(&event.0).to_le_bytes())
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the name of the machine, without characters that are not allowed in file names.
fn host() -> String {
    let known = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let known =
        known.or_else(|| ["HOSTNAME", "COMPUTERNAME"].into_iter().find_map(|name| std::env::var(name).ok()));
    let allowed = |c: &char| c.is_ascii_alphanumeric() || *c == '-' || *c == '_';
    let name: String = known.unwrap_or_default().chars().filter(allowed).take(64).collect();
    if name.is_empty() { "localhost".into() } else { name }
}

/// An encoder of a Protocol Buffers message; each field has a number and a wire type.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn f64(&mut self, field: u64, value: f64) {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
    }

    fn f32(&mut self, field: u64, value: f32) {
        self.varint(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn message(&mut self, field: u64, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }
}

/// Computes the checksum CRC-32C (Castagnoli); the crate `crc32fast` has another polynomial.
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let (mut crc, mut bit) = (i as u32, 0);
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
                bit += 1;
            }
            table[i] = crc;
            i += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc, &byte| TABLE[(crc as u8 ^ byte) as usize] ^ crc >> 8)
}

/// Computes the masked checksum of a record: without the mask, a CRC over data that contains CRCs would be unreliable.
fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn checksums_are_those_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa, "RFC 3720, B.4");
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43, "RFC 3720, B.4");
        assert_eq!(crc32c(b""), 0);
    }

    fn record<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
        let (length, tail) = rest.split_at(8);
        let (sum, tail) = tail.split_at(4);
        assert_eq!(sum, masked(length).to_le_bytes());
        let (bytes, tail) = tail.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
        let (sum, tail) = tail.split_at(4);
        assert_eq!(sum, masked(bytes).to_le_bytes());
        *rest = tail;
        bytes
    }

    #[test]
    fn records_hold_what_was_written() {
        let folder = std::env::temp_dir().join(format!("unpadded-events-{}", std::process::id()));
        let mut events = Events::create(&folder).unwrap();
        drop(Events::create(&folder).unwrap());
        let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> = files.collect();
        files.sort();
        assert_eq!(files.len(), 2, "two in one second");
        let name = files[0].file_name().unwrap().to_str().unwrap().to_owned();
        let begins = ["events.out.tfevents.1", "events.out.tfevents.2"];
        assert!(begins.iter().any(|begin| name.starts_with(begin)), "{name}");
        events.scalar(300, "loss/train", 0.5).unwrap();
        events.text(0, "config", "# a\nß").unwrap();
        events.flush().unwrap();
        let bytes = fs::read(&files[0]).unwrap();
        let mut rest = bytes.as_slice();
        // The expected bytes of each event begin after the time of the event (field 1, 8 bytes).
        assert_eq!(&record(&mut rest)[9..], b"\x1a\x0dbrain.Event:2");
        assert_eq!(&record(&mut rest)[9..], b"\x10\xac\x02\x2a\x13\x0a\x11\x0a\x0aloss/train\x15\0\0\0\x3f");
        let text = record(&mut rest);
        assert_eq!(&text[9..], b"\x10\0\x2a\x24\x0a\x22\x0a\x06config\x42\x0c\x08\x07\x12\0\x42\x06# a\n\xc3\x9f\x4a\x0a\x0a\x06\x0a\x04text\x20\x02");
        assert!(rest.is_empty());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_is_a_file_is_an_error() {
        let path = std::env::temp_dir().join(format!("unpadded-events-file-{}", std::process::id()));
        fs::write(&path, "").unwrap();
        assert!(Events::create(&path).is_err());
        fs::remove_file(path).unwrap();
    }
}
