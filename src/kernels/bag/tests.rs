//! Bags of rows, compared with loops that follow the formulas.

use super::*;
use crate::kernels::checks::numbers;
use crate::kernels::view::Extent2;

const HEIGHT: usize = 40;
/// The starts of bags with no row, with one row, with few rows and with many rows. A bag may contain a table row more
/// than once. One bag has more rows than [`AHEAD`] and than [`BLOCK`].
const STARTS: [usize; 7] = [0, 0, 1, 4, 4, 64, 70];

fn rows() -> Vec<i64> {
    numbers::<f64>(70, 5)
        .iter()
        .map(|x| ((x + 1.0) * HEIGHT as f64 / 4.0) as i64 * 2 % HEIGHT as i64)
        .collect()
}

/// Widths of whole registers and of parts of registers, and width 0.
const WIDTHS: [usize; 10] = [0, 1, 3, 8, 15, 31, 63, 64, 100, 129];

struct Case {
    width: usize,
    table: Vec<f64>,
    dout: Vec<f64>,
    rows: Vec<i64>,
    factors: Vec<f64>,
}

impl Case {
    fn of(width: usize) -> Self {
        let (table, dout) = (numbers(HEIGHT * (width + 3), 1), numbers((STARTS.len() - 1) * width, 2));
        Case { width, table, dout, rows: rows(), factors: numbers(70, 3) }
    }

    fn table(&self) -> View<'_, f64> {
        let extent = Extent2 { rows: HEIGHT, width: self.width, stride: self.width + 3 };
        View::strided(&self.table, extent)
    }

    fn dout(&self) -> View<'_, f64> {
        View::new(&self.dout, STARTS.len() - 1, self.width)
    }

    fn bags<'a>(&'a self, factors: Option<&'a [f64]>) -> Bags<'a, f64> {
        Bags { rows: &self.rows, starts: &STARTS, factors }
    }

    fn forward(&self, pool: BagPool, factors: Option<&[f64]>) -> Vec<f64> {
        let mut out = vec![f64::NAN; (STARTS.len() - 1) * self.width];
        let view = ViewMut::new(&mut out, STARTS.len() - 1, self.width);
        bag_forward(pool, self.bags(factors), self.table(), view);
        out
    }

    /// The numbers in column `j`, bag by bag.
    fn column(&self, j: usize) -> impl Iterator<Item = Vec<f64>> {
        STARTS.windows(2).map(move |bag| {
            let column = |&row: &i64| self.table().row(row as usize)[j];
            self.rows[bag[0]..bag[1]].iter().map(column).collect()
        })
    }
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-13 * b.abs().max(1.0)
}

#[test]
fn bags_are_what_the_formulas_say() {
    for width in WIDTHS {
        let case = Case::of(width);
        let [sum, mean, max] =
            [BagPool::Sum, BagPool::Mean, BagPool::Max].map(|pool| case.forward(pool, None));
        let weighted = case.forward(BagPool::Sum, Some(&case.factors));
        for j in 0..width {
            for (bag, column) in case.column(j).enumerate() {
                let (at, count) = (bag * width + j, column.len().max(1) as f64);
                let expected: f64 = column.iter().sum();
                assert!(near(sum[at], expected) && near(mean[at], expected / count), "width {width}, {at}");
                let factors = &case.factors[STARTS[bag]..];
                let expected: f64 = column.iter().zip(factors).map(|(x, f)| x * f).sum();
                assert!(near(weighted[at], expected), "width {width}, {at}");
                let largest = column.iter().copied().reduce(f64::max).unwrap_or(0.0);
                assert_eq!(max[at], largest, "width {width}, {at}");
            }
        }
    }
}

#[test]
fn the_gradient_of_a_factor_is_a_product_with_its_row() {
    for width in WIDTHS {
        let case = Case::of(width);
        let mut out = vec![f64::NAN; case.rows.len()];
        bag_factor_gradient(case.bags(None), case.table(), case.dout(), &mut out);
        for bag in 0..STARTS.len() - 1 {
            let places = STARTS[bag]..STARTS[bag + 1];
            for (&row, &got) in case.rows[places.clone()].iter().zip(&out[places]) {
                let pairs = case.table().row(row as usize).iter().zip(case.dout().row(bag));
                assert!(near(got, pairs.map(|(x, d)| x * d).sum()), "width {width}, row {row}");
            }
        }
    }
}

#[test]
fn rows_get_the_sum_over_their_occurrences() {
    for width in WIDTHS {
        let case = Case::of(width);
        let count = STARTS.len() - 1;
        let bags: Vec<u32> =
            (0..count).flat_map(|bag| vec![bag as u32; STARTS[bag + 1] - STARTS[bag]]).collect();
        let (mut which, mut best) = (vec![u32::MAX; count * width], vec![f64::NAN; count * width]);
        bag_first_maximum(case.bags(None), case.table(), &mut which, ViewMut::new(&mut best, count, width));
        assert_eq!(best, case.forward(BagPool::Max, None));
        let mut plan = RowMerge::new();
        plan.prepare(&case.rows);
        for share in [BagShare::Whole, BagShare::Factors(&case.factors), BagShare::Maxima(&which)] {
            // The contribution of each occurrence to its row.
            let mut expected = vec![0.0; HEIGHT * width];
            for (at, (&row, &bag)) in case.rows.iter().zip(&bags).enumerate() {
                for j in 0..width {
                    let share = match share {
                        BagShare::Whole => 1.0,
                        BagShare::Factors(factors) => factors[at],
                        BagShare::Maxima(_) => {
                            let column = case.column(j).nth(bag as usize).unwrap();
                            let largest = column.iter().copied().reduce(f64::max).unwrap();
                            let first = column.iter().position(|&x| x == largest).unwrap();
                            f64::from(u8::from(first + STARTS[bag as usize] == at))
                        }
                    };
                    expected[row as usize * width + j] += share * case.dout[bag as usize * width + j];
                }
            }
            let gradient = BagGradient { plan: &plan, bags: &bags, share };
            let mut listed = vec![f64::NAN; plan.ids().len() * width];
            let whole = ViewMut::new(&mut listed, plan.ids().len(), width);
            gradient.put(case.dout(), 0..plan.ids().len(), BagTarget::Listed, whole);
            for (i, &id) in plan.ids().iter().enumerate() {
                for j in 0..width {
                    let (got, expected) = (listed[i * width + j], expected[id as usize * width + j]);
                    assert!(near(got, expected), "width {width}, row {id}: {got} for {expected}");
                }
            }
            // The two parts of the gradient are added to a table that is not zero.
            let mut table = vec![1.0; HEIGHT * width];
            let (middle, all) = (plan.ids().len() / 2, plan.ids().len());
            let first = plan.ids()[middle] as usize;
            let (head, tail) = ViewMut::new(&mut table, HEIGHT, width).split_rows(first);
            gradient.put(case.dout(), middle..all, BagTarget::Table { first }, tail);
            gradient.put(case.dout(), 0..middle, BagTarget::Table { first: 0 }, head);
            assert!(table.iter().zip(&expected).all(|(&got, e)| near(got, 1.0 + e)), "width {width}");
        }
    }
}

#[test]
fn the_first_of_equal_maxima_counts_and_nan_is_the_largest() {
    let table = [1.0f32, 2.0, f32::NAN, 2.0, 1.0, 5.0];
    let (rows, starts) = ([0, 1, 0, 2, 1], [0, 3, 5]);
    let bags = Bags { rows: &rows, starts: &starts, factors: None };
    let (mut which, mut best) = ([9; 4], [0.0f32; 4]);
    bag_first_maximum(bags, View::new(&table, 3, 2), &mut which, ViewMut::new(&mut best, 2, 2));
    assert_eq!(which, [1, 0, 4, 3]);
    assert!(best[0].is_nan() && best[2].is_nan());
    assert_eq!((best[1], best[3]), (2.0, 5.0));
}

#[test]
#[should_panic(expected = "row 3 of 3")]
fn a_row_outside_the_table_panics() {
    let bags = Bags { rows: &[3], starts: &[0, 1], factors: None };
    bag_forward(BagPool::Sum, bags, View::new(&[0.0f32; 3], 3, 1), ViewMut::new(&mut [0.0], 1, 1));
}
