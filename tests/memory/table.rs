//! A row-sparse parameter takes memory for the rows that were touched, whatever its height, in training and in a predictor.

use std::thread;

use unpadded::data::{Batch, Batches, Data};
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::{EmbeddingBag, init};
use unpadded::optimizer::{Adagrad, Adam, Optimizer};
use unpadded::parallel::{World, threads};
use unpadded::train::{Progress, Trainer, Until};
use unpadded::{Builder, DType, Variable};

use crate::peak_memory;

const WIDTH: usize = 64;

/// Returns the peak memory of a training that touches `rows` rows, a hundred per step.
fn peak(height: usize, rows: usize) -> usize {
    let step = height / rows;
    let (peak, touched) = peak_memory::of(|| {
        let net = Builder::new();
        let ids = net.feed("ids", DType::I64, &[], 0);
        let table = net.row_sparse_parameter("table", DType::F32, &[height, WIDTH], init::normal(0.1));
        let loss = net.lookup(ids, table, None, true).tanh().mean();
        let (registry, mut program) = (net.registry(), net.finish().unwrap());
        Adagrad::new(0.1).minimize(&mut program, &registry, loss.id()).unwrap();
        let mut executor = Executor::new(&program, &registry, &[], 1).unwrap();
        let mut scope = Scope::of(&program).unwrap();
        for first in (0..rows).step_by(100) {
            let fed: Vec<i64> = (first..first + 100).map(|row| (row * step) as i64).collect();
            let fed = Variable::from(ndarray::Array1::from(fed));
            executor.run(&mut scope, &Run::train(&[(ids.id(), &fed)], 0)).unwrap();
        }
        scope.value("table.sum").unwrap().as_selected_rows().unwrap().row_ids().len()
    });
    assert_eq!(touched, rows);
    peak
}

#[test]
fn memory_grows_with_the_rows_that_were_touched() {
    own_process!();
    // The first training allocates the memory that the process keeps.
    peak(1000, 100);
    let [few, many] = [1_000, 16_000].map(|rows| peak(1_000_000_000_000, rows));
    let low = peak(16_000, 16_000);
    println!("{few} bytes for 1,000 rows, {many} for 16,000, {low} for 16,000 of a table of as many");
    // The height costs nothing.
    assert!(many.abs_diff(low) < 4096, "{many} is not {low}");
    // A parameter and a sum, each with room to grow, an index, and the copy that was asked for.
    let row = WIDTH * size_of::<f32>();
    assert!(many - few < 15_000 * 6 * row, "{few}, {many}");
    assert!(many - few > 15_000 * 2 * row, "{few}, {many}");
}

/// Batches of rows of a table, each in several sequences.
struct Rows(usize);

impl Data for Rows {
    fn batches(&self, _: Option<u64>, from: u64) -> unpadded::Result<Batches> {
        let height = self.0;
        let batch = move |step: u64| {
            let row = |at: u64| ((400 * step + at) % height as u64) as i64;
            let sequences: Vec<Vec<i64>> =
                (0..4).map(|part| (100 * part..100 * part + 100).map(row).collect()).collect();
            let ids = Variable::from_sequences(&sequences)?;
            Ok(Batch::of(vec![("ids".to_owned(), ids)], (0..4).collect(), 400))
        };
        Ok(Box::new((from..height as u64 / 400).map(batch)))
    }

    fn batch_count(&self) -> Option<u64> {
        Some(self.0 as u64 / 400)
    }

    fn fingerprint(&self) -> u64 {
        self.0 as u64
    }
}

/// The most memory that some ranks take together which train a table that is dealt to them, 400 rows a step.
fn peak_of_ranks(ranks: usize, height: usize) -> usize {
    let train = |rank| {
        let net = Builder::new();
        let ids = net.feed("ids", DType::I64, &[], 1);
        let loss = ids.embedding_bag(EmbeddingBag::new(1 << 40, WIDTH).row_sparse()).tanh().mean();
        let trainer = Trainer::new(net, loss, &Adam::new(0.1).lazy()).unwrap().deal_tables();
        let mut trainer = trainer.distributed(World::new(rank)).parts(4).threads(1).progress(Progress::Quiet);
        let steps = height as u64 / 400;
        trainer.fit(&Rows(height), &Rows(400), Until::Steps(steps)).unwrap();
    };
    let (peak, ()) = peak_memory::of(|| {
        thread::scope(|scope| {
            let running: Vec<_> =
                threads(ranks).into_iter().map(|rank| scope.spawn(|| train(rank))).collect();
            running.into_iter().for_each(|rank| rank.join().unwrap());
        });
    });
    peak
}

/// Each rank holds its share of the table and of the rule's states, and of all other rows only the rows of a batch.
#[test]
fn ranks_divide_a_table() {
    own_process!();
    const HEIGHT: usize = 40_000;
    peak_of_ranks(1, 1000);
    let [one, two, three] = [1, 2, 3].map(|ranks| peak_of_ranks(ranks, HEIGHT));
    let table = HEIGHT * WIDTH * size_of::<f32>();
    println!("{one} bytes on one rank, {two} on two and {three} on three, of a table of {table}");
    // The value and two moments, each with room to grow to twice its size; the value of the best epoch, and the copy that is made
    // of it.
    assert!(one < 9 * table, "{one} for a table of {table}");
    for together in [two, three] {
        assert!(together < one + one / 10, "{together} is not {one}");
    }
}
