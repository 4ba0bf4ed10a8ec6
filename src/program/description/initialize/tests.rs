//! Tests the distributions, the orthogonality, the dependence on seed and name, and the refused attributes of initialisers.

use super::*;

fn start(kind: &str, attributes: Attributes, dims: &[usize]) -> Result<Vec<f64>> {
    let dense = evaluate(&Initializer::new(kind, attributes), dims, DType::F64, 3, "w")?;
    assert_eq!(dense.shape(), dims);
    Ok(dense.as_slice::<f64>()?.to_vec())
}

fn moments(numbers: &[f64]) -> (f64, f64) {
    let n = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / n;
    (mean, (numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt())
}

#[test]
fn distributions() {
    let none = Attributes::new;
    assert_eq!(start("zeros", none(), &[2, 2]).unwrap(), [0.0; 4]);
    assert_eq!(start("constant", none().with("value", 1.5), &[2]).unwrap(), [1.5; 2]);
    let (mean, std) = moments(&start("normal", none().with("std", 0.5), &[100, 101]).unwrap());
    assert!(mean.abs() < 0.02 && (std - 0.5).abs() < 0.02, "{mean} {std}");
    let uniform = start("uniform", none().with("low", -1.0).with("high", 3.0), &[5000]).unwrap();
    let (mean, std) = moments(&uniform);
    assert!((mean - 1.0).abs() < 0.05 && (std - 4.0 / 12f64.sqrt()).abs() < 0.05, "{mean} {std}");
    assert!(uniform.iter().all(|x| (-1.0..3.0).contains(x)));
    // The bound is √(6 / (20 + 10)): one gate has 20 rows and 10 columns.
    let xavier = start("xavier_uniform", none().with("blocks", 4), &[20, 40]).unwrap();
    let largest = xavier.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let bound = (6.0f64 / 30.0).sqrt();
    assert!(largest <= bound && largest > 0.95 * bound, "{largest}");
    assert_eq!(
        start("lstm_bias", none().with("forget", 1.0), &[8]).unwrap(),
        [0., 0., 1., 1., 0., 0., 0., 0.]
    );
    let table = start("embedding", none().with("std", 1.0).with("padding", 1), &[3, 2]).unwrap();
    assert_eq!(table[2..4], [0.0, 0.0]);
    assert!(table[..2].iter().chain(&table[4..]).all(|&x| x != 0.0));
}

#[test]
fn orthogonal_in_any_shape() {
    for (rows, columns, blocks) in
        [(6, 6, 1), (9, 4, 1), (4, 9, 1), (16, 16, 4), (3, 5, 2), (1, 1, 3), (0, 4, 1), (33, 33, 1)]
    {
        let attributes = Attributes::new().with("blocks", blocks).with("gain", 2.0);
        let width = columns * blocks;
        let w = start("orthogonal", attributes, &[rows, width]).unwrap();
        for block in 0..blocks {
            let at = |i: usize, j: usize| w[i * width + block * columns + j];
            let by_columns = columns <= rows;
            let (count, length) = if by_columns { (columns, rows) } else { (rows, columns) };
            let value =
                |vector, position| if by_columns { at(position, vector) } else { at(vector, position) };
            for a in 0..count {
                for b in 0..count {
                    let product: f64 = (0..length).map(|k| value(a, k) * value(b, k)).sum();
                    let expected = if a == b { 4.0 } else { 0.0 };
                    assert!((product - expected).abs() < 1e-12, "{rows}x{columns}: {product}");
                }
            }
        }
    }
}

#[test]
fn numbers_depend_on_seed_and_name_alone() {
    let normal = Initializer::new("normal", Attributes::new().with("std", 1.0));
    let draw = |seed, name| evaluate(&normal, &[4], DType::F32, seed, name).unwrap();
    assert_eq!(draw(1, "a"), draw(1, "a"));
    assert_ne!(draw(1, "a"), draw(1, "b"));
    assert_ne!(draw(1, "a"), draw(2, "a"));
    assert_eq!(draw(1, "a").dtype(), DType::F32);
}

#[test]
fn the_numbers_of_this_version() {
    let uniform = Initializer::new("uniform", Attributes::new().with("low", 0).with("high", 1));
    let got = evaluate(&uniform, &[3], DType::F64, 0, "fc.weight").unwrap();
    // These numbers were computed by a Philox in another language. A change of these numbers breaks compatibility, and must be
    // listed in the changelog.
    let expected = [0.6448725164112267, 0.1893222632013437, 0.707722959916667];
    assert_eq!(got.as_slice::<f64>().unwrap(), expected);
}

#[test]
fn what_does_not_fit_is_refused() {
    let none = Attributes::new;
    let message = |kind, attributes, dims: &[usize]| start(kind, attributes, dims).unwrap_err().to_string();
    assert!(
        message("wishes", none(), &[2]).starts_with("variable `w`: initialiser: expected zeros, constant")
    );
    assert!(message("uniform", none(), &[2]).contains("attribute `low`"));
    assert!(message("uniform", none().with("low", 1).with("high", 0), &[2]).contains("low <= high"));
    assert!(message("normal", none().with("std", f64::NAN), &[2]).contains("`std`"));
    assert!(message("constant", none().with("value", f64::NAN), &[2]).contains("`value`: expected a number"));
    assert!(
        message("lstm_bias", none().with("forget", f64::NAN), &[4]).contains("`forget`: expected a number")
    );
    assert!(message("xavier_uniform", none(), &[2]).contains("a matrix"));
    assert!(message("orthogonal", none().with("blocks", 3), &[2, 4]).contains("multiple of `blocks` = 3"));
    assert!(message("orthogonal", none().with("blocks", 0), &[2, 4]).contains("`blocks` = 0"));
    assert!(message("lstm_bias", none().with("forget", 1), &[6]).contains("[4H]"));
    start("orthogonal", none(), &[usize::MAX, usize::MAX]).unwrap_err();
    start("zeros", none(), &[1 << 40, 1 << 20]).unwrap_err();
}

#[test]
fn gates_start_at_their_values() {
    let values_of = |values: Vec<f64>| Attributes::new().with("values", values);
    let three = || values_of(vec![0.5, -1.0, 2.0]);
    assert_eq!(start("gate_biases", three(), &[6]).unwrap(), [0.5, 0.5, -1.0, -1.0, 2.0, 2.0]);
    assert_eq!(start("gate_biases", three(), &[0]).unwrap(), [0.0; 0]);
    // `gate_biases` with the values 0, 1, 0, 0 gives the bias of an LSTM.
    let lstm = start("lstm_bias", Attributes::new().with("forget", 1.0), &[8]).unwrap();
    assert_eq!(start("gate_biases", values_of(vec![0.0, 1.0, 0.0, 0.0]), &[8]).unwrap(), lstm);
    // A file may contain whole numbers in place of floats.
    let whole = Attributes::new().with("values", vec![1, 2]);
    assert_eq!(start("gate_biases", whole, &[2]).unwrap(), [1.0, 2.0]);
    let refused = [
        (three(), vec![5], "the same number of values for each of 3 gates"),
        (three(), vec![3, 2], "the same number of values for each of 3 gates"),
        (values_of(vec![]), vec![4], "a number for each gate, got none"),
        (values_of(vec![f64::NAN]), vec![4], "a number for each gate"),
        (Attributes::new(), vec![4], "attribute `values`"),
    ];
    for (attributes, dims, message) in refused {
        let error = start("gate_biases", attributes, &dims).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn chrono_biases_span_up_to_the_longest_time() {
    let chrono = |steps: usize, width: usize| {
        start("chrono", Attributes::new().with("t_max", steps), &[width]).unwrap()
    };
    let bias = chrono(101, 4 * 2000);
    let (input, forget, rest) = (&bias[..2000], &bias[2000..4000], &bias[4000..]);
    assert!(rest.iter().all(|&b| b == 0.0));
    assert!(input.iter().zip(forget).all(|(input, forget)| *input == -forget));
    // Uniform times in 1..100: mean 50.5, deviation 99 / √12.
    let times: Vec<f64> = forget.iter().map(|b| b.exp()).collect();
    assert!(times.iter().all(|t| (1.0 - 1e-9..100.0).contains(t)));
    let (mean, std) = moments(&times);
    assert!((mean - 50.5).abs() < 2.0 && (std - 99.0 / 12f64.sqrt()).abs() < 1.0, "{mean} {std}");
    assert_eq!(chrono(101, 8), chrono(101, 8));
    let other = Initializer::new("chrono", Attributes::new().with("t_max", 101));
    let other = evaluate(&other, &[8], DType::F64, 4, "w").unwrap();
    assert_ne!(chrono(101, 8), other.as_slice::<f64>().unwrap());
    assert!(chrono(2, 8).iter().all(|&b| b == 0.0));
    assert!(chrono(50, 0).is_empty());
    let message = |steps: usize, width| {
        let given = Attributes::new().with("t_max", steps);
        start("chrono", given, &[width]).unwrap_err().to_string()
    };
    assert!(message(1, 8).contains("`t_max`: expected at least 2 steps, got 1"), "{}", message(1, 8));
    assert!(message(9, 6).contains("[4H]"));
}
