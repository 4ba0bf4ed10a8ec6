//! Tests the decoding of records of other releases, and of malformed bytes.

use super::*;

record! {
    #[derive(Debug, Clone, PartialEq, Default)]
    struct Point {
        1 name: String,
        2 places: Vec<f64>,
        4 note: Option<String>,
        5 kind: Option<Box<Kind>>,
        6 texts: BTreeMap<String, u64> = BTreeMap::new(),
    }
}

record! {
    /// The same record in a later release.
    #[derive(Debug, Clone, PartialEq)]
    struct LaterPoint {
        1 name: String,
        2 places: Vec<f64>,
        4 note: Option<String>,
        5 kind: Option<Box<Kind>>,
        6 texts: BTreeMap<String, u64> = BTreeMap::new(),
        7 weight: u32 = 3,
        8 more: Vec<Point> = Vec::new(),
    }
}

variants! {
    #[derive(Debug, Clone, PartialEq)]
    enum Kind {
        1 None(()),
        2 List(Vec<Kind>),
        3 Known(bool),
    }
}

fn point() -> Point {
    Point {
        name: "é".to_owned(),
        places: vec![1.0, -0.0, f64::MAX],
        note: Some(String::new()),
        kind: Some(Box::new(Kind::List(vec![Kind::None(()), Kind::Known(true), Kind::List(Vec::new())]))),
        texts: [("a".to_owned(), 1), ("b".to_owned(), u64::MAX)].into(),
    }
}

fn refused<T: FieldType>(bytes: &[u8]) -> String {
    let error = from_bytes::<T>(bytes).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Format);
    error.to_string()
}

#[test]
fn values_come_back_and_equal_ones_are_equal_bytes() {
    for value in [point(), Point { note: None, kind: None, ..point() }, Point::default()] {
        let bytes = to_bytes(&value);
        assert_eq!(from_bytes::<Point>(&bytes).unwrap(), value);
        assert_eq!(to_bytes(&value.clone()), bytes);
    }
    // The bytes of the file format are written out by hand.
    let small = Point { name: "xy".to_owned(), places: vec![1.5], ..Point::default() };
    let mut expected = vec![1, 2, 0, 0, 0, b'x', b'y', 2, 12, 0, 0, 0, 8, 0, 0, 0];
    expected.extend_from_slice(&1.5f64.to_le_bytes());
    expected.extend_from_slice(&[6, 0, 0, 0, 0]);
    assert_eq!(to_bytes(&small), expected);
}

#[test]
fn releases_read_each_other() {
    let early = to_bytes(&point());
    let Point { name, places, note, kind, texts } = point();
    let later = LaterPoint { name, places, note, kind, texts, weight: 3, more: Vec::new() };
    assert_eq!(from_bytes::<LaterPoint>(&early).unwrap(), later);
    let more = LaterPoint { weight: 9, more: vec![point(), point()], ..later };
    assert_eq!(from_bytes::<Point>(&to_bytes(&more)).unwrap(), point());
    // Fields may be in any order; each field without a default must occur exactly once.
    let turned = [&early[7..], &early[..7]].concat();
    assert_eq!(from_bytes::<Point>(&turned).unwrap(), point());
    assert!(refused::<Point>(&early[7..]).contains("expected a field `name` of Point, got none"));
    let twice = [&early[..], &early[..7]].concat();
    assert!(refused::<Point>(&twice).contains("expected Point name once, got Point name twice"));
}

#[test]
fn what_is_no_value_is_refused() {
    let bytes = to_bytes(&point());
    for end in 1..bytes.len() {
        let truncated = from_bytes::<Point>(&bytes[..end]);
        assert!(truncated.is_err() || truncated.is_ok_and(|truncated| truncated != point()), "{end}");
    }
    // A changed byte never causes a panic, nor an allocation beyond the size of the input.
    for at in 0..bytes.len() {
        for change in [1, 2, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= change;
            if let Ok(other) = from_bytes::<Point>(&bytes) {
                assert_eq!(from_bytes::<Point>(&to_bytes(&other)).unwrap().name, other.name);
            }
        }
    }
    let long = [1, 0xff, 0xff, 0xff, 0xff, b'x'];
    assert!(refused::<Point>(&long).contains("expected at most the 1 bytes that are left, got 4294967295"));
    assert!(refused::<Point>(&[0; 500]).contains("expected the number of a field, from 1 on, got 0"));
    assert!(refused::<bool>(&[2]).contains("expected 0 or 1, got 2"));
    assert!(refused::<u32>(&[0; 5]).contains("expected a value and nothing behind it, got 1 more bytes"));
    assert!(refused::<u64>(&[0; 5]).contains("expected 8 more bytes, got 5"));
    assert!(refused::<String>(&[0xff]).contains("expected text, got bytes that are no UTF-8"));
    assert!(
        refused::<Kind>(&[9, 0, 0, 0, 0]).contains("expected a Kind that this release knows, got number 9")
    );
    assert!(refused::<Kind>(&[]).contains("expected a Kind, got nothing"));
    assert!(refused::<Kind>(&[1, 0, 0, 0, 0, 1]).contains("nothing behind it"));
    let entry = |name: &str| to_bytes(&BTreeMap::from([(name.to_owned(), 1u64)]));
    let unsorted = [entry("b"), entry("a")].concat();
    assert!(
        refused::<BTreeMap<String, u64>>(&unsorted)
            .contains("expected names in ascending order, got `a` after")
    );
    let same = [entry("a"), entry("a")].concat();
    assert!(refused::<BTreeMap<String, u64>>(&same).contains("names in ascending order"));
}

/// The test decodes half a million nested lists: this is an error, and does not overflow the stack.
#[test]
fn deep_nesting_is_an_error() {
    let nested = |depth: usize| (0..depth).fold(Kind::Known(true), |kind, _| Kind::List(vec![kind]));
    assert!(from_bytes::<Kind>(&to_bytes(&nested(30))).is_ok());
    assert!(refused::<Kind>(&to_bytes(&nested(40))).contains("expected at most 64 nested values, got more"));
    // The bytes end after the last list begins; each list declares the number of all remaining bytes as its length.
    let mut deep = Vec::new();
    for i in 0..500_000u32 {
        let left = (500_000 - i) * 9;
        deep.push(2);
        deep.extend_from_slice(&(left - 5).to_le_bytes());
        deep.extend_from_slice(&(left - 9).to_le_bytes());
    }
    assert!(refused::<Kind>(&deep).contains("expected at most 64 nested values, got more"));
}
