//! Files taken apart, damaged and put together again, with checksums that are right.

// Two test binaries have this module, and each uses its own part of it.
#![allow(dead_code)]

use unpadded::wire::{Reader, Writer};

use crate::models::Random;

/// Names and bodies.
pub(crate) type Sections = Vec<(String, Vec<u8>)>;

/// A file taken apart.
pub(crate) fn sections(bytes: &[u8]) -> Sections {
    let mut reader = Reader::new("bytes", bytes, bytes.len() as u64).unwrap();
    let mut all = Vec::new();
    while let Some(name) = reader.next_section().unwrap().map(str::to_owned) {
        all.push((name, reader.read_section().unwrap()));
    }
    all
}

/// A file put together, with checksums that are right.
pub(crate) fn file(sections: &Sections) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    for (name, body) in sections {
        writer.write_section(name, body).unwrap();
    }
    writer.finish().unwrap()
}

/// The fields of a record: their numbers and their bytes.
pub(crate) fn fields(mut record: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut all = Vec::new();
    while let [number, a, b, c, d, rest @ ..] = record {
        let (value, behind) = rest.split_at(u32::from_le_bytes([*a, *b, *c, *d]) as usize);
        all.push((*number, value.to_vec()));
        record = behind;
    }
    assert!(record.is_empty());
    all
}

/// The items of a list.
pub(crate) fn items(list: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut left = list;
    while let [a, b, c, d, rest @ ..] = left {
        let (item, behind) = rest.split_at(u32::from_le_bytes([*a, *b, *c, *d]) as usize);
        all.push(item.to_vec());
        left = behind;
    }
    all
}

/// An item of a list.
pub(crate) fn item(value: &[u8]) -> Vec<u8> {
    [&(value.len() as u32).to_le_bytes(), value].concat()
}

/// A record of fields.
pub(crate) fn record(fields: &[(u8, Vec<u8>)]) -> Vec<u8> {
    fields.iter().flat_map(|(number, value)| [vec![*number], item(value)].concat()).collect()
}

/// Changes a body, or the list of sections.
pub(crate) fn change(all: &mut Sections, random: &mut Random) {
    // Most possible errors are in the program, which comes first.
    let at = if random.below(4) == 0 { 0 } else { random.below(all.len()) };
    let other = random.below(all.len());
    match random.below(24) {
        0 => drop(all.remove(at)),
        1 => all.swap(at, other),
        2 => all.push(all[at].clone()),
        3 => all[at].0 = all[other].0.clone(),
        4 => all[at].1 = all[other].1.clone(),
        5 => {
            let body = &mut all[at].1;
            body.truncate(random.below(body.len() + 1));
        }
        6 => {
            let more = all[other].1.clone();
            all[at].1.extend(more);
        }
        _ => {
            let body = &mut all[at].1;
            for _ in 0..1 + random.below(2) {
                let index = random.below(body.len());
                match random.below(5) {
                    0 => body[index] = random.below(256) as u8,
                    1 => body[index] = random.below(12) as u8,
                    2 => body[index] = body[index].wrapping_add(1),
                    3 => body[index..].iter_mut().take(8).for_each(|b| *b = 0xff),
                    _ => {
                        let from = random.below(body.len());
                        let n = 4.min(body.len() - from.max(index));
                        body.copy_within(from..from + n, index);
                    }
                }
            }
        }
    }
}
