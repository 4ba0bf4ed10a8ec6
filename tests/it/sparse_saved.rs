//! Variables in every storage, written and read again; and damaged bytes.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian, standard};
use ndarray::array;
use unpadded::tensor::{Coo, Csr, SelectedRows, Storage, StorageKind};
use unpadded::{DType, Lod, Variable};

use crate::damage::{file, sections};
use crate::models::Random;

/// The settings of this crate's files: without a limit, bincode trusts the length of a text.
const CONFIG: Configuration<LittleEndian, Fixint, Limit<0x10000>> =
    standard().with_fixed_int_encoding().with_limit();

/// A variable of each storage; but for selected rows, of two sequences.
fn variables() -> Vec<Variable> {
    let bags = Csr::from_rows(7, [vec![(6, 1.5f32), (0, -2.0), (6, 1.0)], vec![], vec![(3, f32::INFINITY)]])
        .unwrap();
    let lod = || Lod::from_lengths1(&[1, 2]).unwrap();
    let cube = Coo::from_entries([3, 2, 2], [([2, 0, 1], 4i64), ([0, 1, 1], -1)]).unwrap();
    let rows = SelectedRows::new(1 << 40, vec![1 << 39, 0, 0], array![[[1i8]], [[2]], [[3]]]).unwrap();
    vec![
        Variable::sequences(bags.to_dense().unwrap(), lod()).unwrap(),
        Variable::new(rows, None).unwrap(),
        Variable::sequences(bags.clone(), lod()).unwrap(),
        Variable::sequences(cube, lod()).unwrap(),
        Variable::sequences(bags.cast(DType::BF16).unwrap(), lod()).unwrap(),
        Variable::new(Csr::zeros(DType::Bool, [0, 5]).unwrap(), None).unwrap(),
    ]
}

fn bytes(x: &Variable) -> Vec<u8> {
    bincode::serde::encode_to_vec(x, CONFIG).unwrap()
}

fn read(bytes: &[u8]) -> Result<Variable, String> {
    match bincode::serde::decode_from_slice(bytes, CONFIG) {
        Ok((x, length)) if length == bytes.len() => Ok(x),
        Ok((_, length)) => Err(format!("{} bytes behind the number", bytes.len() - length)),
        Err(e) => Err(e.to_string()),
    }
}

#[test]
fn every_storage_is_read_as_it_was_written() {
    let mut kinds = Vec::new();
    for x in variables() {
        let whole = file(&vec![("x".to_owned(), bytes(&x))]);
        let (name, body) = sections(&whole).remove(0);
        assert_eq!((name.as_str(), read(&body).unwrap()), ("x", x.clone()));
        kinds.push(x.storage().kind());
    }
    assert!(StorageKind::ALL.iter().all(|kind| kinds.contains(kind)));
}

#[test]
fn what_is_stored_is_checked_as_what_is_given() {
    let text = |value: &dyn Fn() -> Vec<u8>, expected: &str| {
        let (storage, _): (Storage, usize) = match bincode::serde::decode_from_slice(&value(), CONFIG) {
            Ok(read) => read,
            Err(e) => return assert!(e.to_string().contains(expected), "{e}"),
        };
        panic!("{storage:?} was believed");
    };
    let numbers = unpadded::tensor::Dense::from(array![1.0f32, 2.0]);
    let csr = |shape: [usize; 2], indptr: Vec<i64>, indices: Vec<i64>| {
        bincode::serde::encode_to_vec(("csr", (&shape[..], indptr, indices, &numbers)), CONFIG).unwrap()
    };
    text(
        &|| csr([1, 3], vec![0, 2], vec![0, 3]),
        "index of csr at place 1: expected 0 or more and less than 3, the number of columns",
    );
    text(&|| csr([2, 3], vec![0, 2, 1], vec![0, 1]), "indptr of csr: expected never to decrease");
    text(&|| csr([usize::MAX, 3], vec![0, 2], vec![0, 1]), "one more than the");
    let coo = |shape: &[usize], coordinates: Vec<i64>| {
        bincode::serde::encode_to_vec(("coo", (shape, coordinates, &numbers)), CONFIG).unwrap()
    };
    text(&|| coo(&[2], vec![0, 2]), "coordinate 0 of coo entry 1");
    text(&|| coo(&[2, 2], vec![0, 1, 1]), "3 coordinates of coo for the shape [2, 2]");
    text(&|| coo(&[], vec![]), "at least one dimension");
    let rows = |height: usize, ids: Vec<i64>| {
        bincode::serde::encode_to_vec(("selected_rows", (height, ids, &numbers)), CONFIG).unwrap()
    };
    text(&|| rows(3, vec![0, -1]), "selected row at place 1");
    text(&|| rows(3, vec![0]), "one row for each number");
    text(
        &|| bincode::serde::encode_to_vec(("sparse", 1u8), CONFIG).unwrap(),
        "storage: expected one of dense",
    );
    let lod = Lod::from_lengths1(&[5]).unwrap();
    let variable = (Storage::from(numbers.clone()), Some(&*lod));
    let message = read(&bincode::serde::encode_to_vec(variable, CONFIG).unwrap()).unwrap_err();
    assert!(message.contains("number of rows: expected 5"), "{message}");
}

#[test]
fn damaged_bytes_are_refused_or_make_a_whole_variable() {
    let mut random = Random(15);
    let (mut refused, all) = (0, variables());
    for round in 0..10_000 {
        let x = &all[round % all.len()];
        let mut body = bytes(x);
        for _ in 0..=random.below(2) {
            match random.below(3) {
                0 if !body.is_empty() => body.truncate(random.below(body.len())),
                1 => body.insert(random.below(body.len() + 1), random.below(256) as u8),
                _ if !body.is_empty() => {
                    let at = random.below(body.len());
                    body[at] = random.below(256) as u8;
                }
                _ => {}
            }
        }
        match read(&body) {
            Ok(read) => {
                assert!(!read.storage().kind().name().is_empty() && !format!("{read:?}").is_empty());
                assert!(read.batch_size() == read.lod().map_or(read.rows(), |lod| lod.sequences()));
                // Accepted values are well formed: they are written, and read again unchanged.
                let again = bytes(&read);
                assert_eq!(bytes(&self::read(&again).unwrap()), again);
            }
            Err(message) => {
                assert!(!message.is_empty());
                refused += 1;
            }
        }
    }
    assert!((3000..10_000).contains(&refused), "{refused} of 10000 refused");
    // In a file, the checksum notices first.
    let mut framed = file(&vec![("x".to_owned(), bytes(&all[2]))]);
    let middle = framed.len() / 2;
    framed[middle] ^= 1;
    let mut reader = unpadded::wire::Reader::new("bytes", framed.as_slice(), framed.len() as u64).unwrap();
    assert!(reader.next_section().is_err() || reader.read_section().is_err());
}
