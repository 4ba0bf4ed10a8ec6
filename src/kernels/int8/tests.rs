//! Tests of the products of 8-bit integers: every engine against exact sums, and products against their definition.

use super::instructions::MAX_SUMS;
use super::*;
use crate::kernels::checks::{numbers, turned};

/// Every engine gives the sums of 64-bit integers, for each size that a product may take, and codes of every value.
#[test]
fn every_engine_sums_exactly() {
    let engines = IntegerEngine::available();
    let names: Vec<&str> = engines.iter().map(|engine| engine.name()).collect();
    println!("{names:?}");
    assert_eq!(names.last(), Some(&"int8"));
    assert_eq!(IntegerEngine::best(), engines[0], "an instruction of this CPU is not exact");
    let mut seed = 1;
    let mut bytes = |len: usize| -> Vec<u8> {
        seed += 1;
        numbers::<f64>(len, seed).into_iter().map(|x| ((x + 1.0) * 128.0).clamp(0.0, 255.0) as u8).collect()
    };
    for words in [4, 16, 20, 64] {
        for (rows, panels) in
            [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1), (4, 2), (5, 1), (17, 1), (32, 1)]
        {
            let left = bytes(rows * words * CODES);
            let right = bytes(panels * words * WIDTH * CODES);
            let a: Vec<i32> =
                left.as_chunks::<CODES>().0.iter().map(|&four| i32::from_le_bytes(four)).collect();
            let mut b = vec![PanelRow([[0; CODES]; WIDTH]); panels * words];
            let columns = b.iter_mut().flat_map(|row| &mut row.0);
            for (column, codes) in columns.zip(right.as_chunks::<CODES>().0) {
                *column = codes.map(|code| code as i8);
            }
            let exact = |row: usize, panel: usize, column: usize| -> i64 {
                let codes = b[panel * words..][..words].iter().flat_map(|row| row.0[column]);
                let left = &left[row * words * CODES..][..words * CODES];
                left.iter().zip(codes).map(|(&x, code)| i64::from(x) * i64::from(code)).sum()
            };
            let mut checked = 0;
            for &engine in &engines {
                let takes = engine.size(rows, words).0 == rows;
                let fits = panels == 1 || panels <= 2 && rows <= 4 || rows == 1;
                let many = panels > 1 && matches!(engine.name(), "int8-avx2" | "int8");
                if !takes || !fits || many {
                    continue;
                }
                let mut sums = [[i32::MIN; WIDTH]; MAX_SUMS];
                engine.multiply(&a, &b, (rows, panels, words), &mut sums);
                for (i, sums) in sums[..rows * panels].iter().enumerate() {
                    for (column, &sum) in sums.iter().enumerate() {
                        let expected = exact(i / panels, i % panels, column);
                        assert_eq!(i64::from(sum), expected, "{engine:?}, {rows} rows, {words} words");
                    }
                }
                checked += 1;
            }
            let by_all = rows <= 4 && panels == 1;
            assert!(checked > 0 || !by_all, "{rows} rows of {panels} panels");
        }
    }
}

/// The longest sums of the largest codes do not overflow.
#[test]
fn the_longest_sums_fit() {
    let (k, n) = (MAX_CODE_ROWS, 2);
    let codes: Vec<i8> = [127, -128].repeat(k);
    let mut matrix = CodedMatrix::default();
    matrix.resize(k, n);
    matrix.put(View::new(&codes, k, n), Transpose::No, 0);
    let a = vec![127.0f32; 5 * k];
    let (mut c, mut room) = (vec![0.0; 5 * n], CodedRows::default());
    let to = ViewMut::new(&mut c, 5, n);
    coded_affine(View::new(&a, 5, k), &matrix, &[1.0, 1.0], None, to, Assign::Write, &mut room, 1);
    let largest = (127 * k) as f32;
    assert_eq!(c, [127.0 * largest, -128.0 * largest].repeat(5));
}

/// Returns a product as the module defines it, by a loop over its elements.
fn expected(a: &View<'_, f32>, codes: &View<'_, i8>, scales: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    let mut all = Vec::new();
    for row in a.iter() {
        let mut of_row = vec![0; row.len()];
        let scale = encode(row.iter().copied(), &mut of_row);
        for (column, &of_column) in scales.iter().enumerate() {
            let products =
                of_row.iter().enumerate().map(|(k, &x)| i32::from(x) * i32::from(codes.row(k)[column]));
            let number = products.sum::<i32>() as f32 * (scale * of_column);
            all.push(bias.map_or(number, |bias| number + bias[column]));
        }
    }
    all
}

/// Products have the bits of their definition, alone, in any batch, on any number of threads, written or added, for matrices that
/// are stored transposed, and in parts.
#[test]
fn products_have_the_bits_of_their_definition() {
    for (m, k, n) in [
        (1, 1, 1),
        (1, 64, 129),
        (3, 20, 33),
        (7, 65, 64),
        (40, 128, 100),
        (66, 256, 300),
        (9, 65, 40),
        (70, 2100, 40),
        (2, 0, 3),
        (0, 4, 4),
    ] {
        let a = numbers::<f32>(m * k, 3);
        let a = View::new(&a, m, k);
        let codes: Vec<i8> = numbers::<f32>(k * n, 5).into_iter().map(|x| (x * 127.4) as i8).collect();
        let scales: Vec<f32> = numbers::<f32>(n, 7).into_iter().map(|x| 0.01 + x.abs()).collect();
        let bias = numbers::<f32>(n, 9);
        let coded = View::new(&codes, k, n);
        let turned = turned(coded);
        let turned = View::new(&turned, n, k);
        let (mut matrix, mut other) = (CodedMatrix::default(), CodedMatrix::default());
        matrix.resize(k, n);
        matrix.put(coded, Transpose::No, 0);
        other.resize(k, n);
        other.put(turned.rows_range(0, n / 2), Transpose::Yes, 0);
        other.put(turned.rows_range(n / 2, n), Transpose::Yes, n / 2);
        let mut room = CodedRows::default();
        for bias in [None, Some(&bias[..])] {
            let right = expected(&a, &coded, &scales, bias);
            for (matrix, threads) in [(&matrix, 1), (&other, 3)] {
                let mut c = vec![f32::NAN; m * n];
                let to = ViewMut::new(&mut c, m, n);
                coded_affine(a, matrix, &scales, bias, to, Assign::Write, &mut room, threads);
                assert_eq!(c, right, "{m} x {k} x {n} on {threads} threads");
                let to = ViewMut::new(&mut c, m, n);
                coded_affine(a, matrix, &scales, bias, to, Assign::Add, &mut room, threads);
                assert!(c.iter().zip(&right).all(|(c, right)| *c == right + right));
            }
            for i in 0..m {
                let mut c = vec![f32::NAN; n];
                let (row, to) = (a.rows_range(i, i + 1), ViewMut::new(&mut c, 1, n));
                coded_affine(row, &matrix, &scales, bias, to, Assign::Write, &mut room, 1);
                assert_eq!(c, right[i * n..][..n], "row {i} alone");
            }
        }
    }
}

/// A code is the nearest of 255 integers; numbers near 0, NaN and infinities give the scales that the documentation names.
#[test]
fn codes_are_the_nearest_integers() {
    let mut codes = [0; 4];
    let scale = encode([127.0f32, -63.6, 0.4, -127.0].into_iter(), &mut codes);
    assert_eq!((scale, codes), (1.0, [127, -64, 0, -127]));
    assert_eq!(encode([0.0f32; 4].into_iter(), &mut codes), 0.0);
    assert_eq!(codes, [0; 4]);
    assert_eq!(encode([1e-40f32, -1e-42, 0.0, 0.0].into_iter(), &mut codes), 0.0);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert!(encode([1.0, bad, 0.0, 0.0].into_iter(), &mut codes).is_nan());
    }
    let many = numbers::<f32>(1000, 2);
    let mut codes = vec![0; 1000];
    let scale = encode(many.iter().copied(), &mut codes);
    let error = |(&x, &code): (&f32, &i8)| (x - f32::from(code) * scale).abs();
    let most = many.iter().zip(&codes).map(error).fold(0.0, f32::max);
    assert!(most <= 0.5001 * scale && most > 0.49 * scale, "{most} of {scale}");
}

/// A row with a NaN or an infinite number gives a row of NaN, and no other row changes.
#[test]
fn numbers_that_are_not_finite_reach_the_product() {
    let (k, n) = (8, 40);
    let mut a = numbers::<f32>(3 * k, 3);
    a[k + 2] = f32::INFINITY;
    let codes = vec![1i8; k * n];
    let mut matrix = CodedMatrix::default();
    matrix.resize(k, n);
    matrix.put(View::new(&codes, k, n), Transpose::No, 0);
    let mut c = vec![0.0; 3 * n];
    let (to, mut room) = (ViewMut::new(&mut c, 3, n), CodedRows::default());
    coded_affine(View::new(&a, 3, k), &matrix, &vec![1.0; n], None, to, Assign::Write, &mut room, 1);
    assert!(c[..n].iter().chain(&c[2 * n..]).all(|x| x.is_finite()));
    assert!(c[n..2 * n].iter().all(|x| x.is_nan()));
}
