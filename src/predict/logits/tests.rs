//! The passes over logits, beside plain loops.

use super::*;

fn row(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 + 13) % 101) as f32 * 0.17 - 9.0).collect()
}

#[test]
fn as_if_one_by_one_at_every_length() {
    for len in (1..100).chain([1000, 1023]) {
        let row = row(len);
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert_eq!(largest(&row), Ok(most));
        assert_eq!(first_largest(&row, most), row.iter().position(|&x| x == most));
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        assert!((log_sum_exp(&row, most) - sum.ln()).abs() < 1e-6, "{len}");
        for from in [0, len / 3, len] {
            let mut found = vec![];
            // The threshold rises above each logit that is found, so each later logit that is found is larger than
            // all earlier ones.
            from_threshold(&row, from, -5.0, |i, x| {
                found.push(i);
                x + 0.001
            });
            let (mut least, mut expected) = (-5.0, vec![]);
            for (i, &x) in row.iter().enumerate().skip(from) {
                if x >= least {
                    expected.push(i);
                    least = x + 0.001;
                }
            }
            assert_eq!(found, expected, "{len} from {from}");
        }
        let mut weights = vec![9.0; 3];
        weigh(&row, most, 0.5, &mut weights);
        assert_eq!(weights.len(), len);
        let close = |(&w, &x): (&f32, &f32)| (w - ((x - most) * 0.5).exp()).abs() < 1e-6;
        assert!(weights.iter().zip(&row).all(close));
        let total: f64 = block_sums(&weights).map(|(_, sum)| sum).sum();
        assert!((total - weights.iter().map(|&w| f64::from(w)).sum::<f64>()).abs() < 1e-9);
    }
}

#[test]
fn what_is_not_a_number_is_found_wherever_it_stands() {
    for len in [1, 31, 32, 33, 70] {
        for at in 0..len {
            for wrong in [f32::NAN, f32::INFINITY] {
                let mut row = row(len);
                row[at] = wrong;
                assert_eq!(largest(&row).unwrap_err().to_bits(), wrong.to_bits());
            }
        }
    }
    assert_eq!(largest(&[]), Ok(f32::NEG_INFINITY));
    let nothing = [f32::NEG_INFINITY; 40];
    assert_eq!(largest(&nothing), Ok(f32::NEG_INFINITY));
    assert_eq!(first_largest(&nothing, f32::NEG_INFINITY), None);
}

#[test]
fn no_probability_is_above_one() {
    assert_eq!(log_sum_exp(&[3.5], 3.5), 3.5);
    assert_eq!(log_sum_exp(&[-7e30, f32::NEG_INFINITY], -7e30), f64::from(-7e30f32));
    let row = [2.0, 2.0, f32::NEG_INFINITY];
    assert!((log_sum_exp(&row, 2.0) - (2.0 + 2f64.ln())).abs() < 1e-7);
}
