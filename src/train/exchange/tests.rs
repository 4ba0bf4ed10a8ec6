//! What a step of several ranks sends and copies, in exchanges, bytes and numbers.

use crate::data::{Batching, Loader, Samples};
use crate::layers::Embedding;
use crate::optimizer::Sgd;
use crate::parallel::{ThreadRank, Traffic, World, threads};
use crate::tensor::floats::copied;
use crate::train::{Progress, Trainer, Until};
use crate::{Builder, DType};

/// The width of the product; the gradients, all dense, have 9 `WIDTH` + `WIDTH`² + `WIDTH` numbers.
const WIDTH: usize = 40;
const STEPS: u64 = 5;

/// Returns the traffic and the copied numbers of the last `STEPS` steps of a rank.
fn steps_of(rank: ThreadRank, parts: u64) -> (Traffic, u64) {
    let net = Builder::new().seed(3);
    let x = net.feed("x", DType::I64, &[], 0);
    let loss = x.embedding(Embedding::new(9, WIDTH)).linear(WIDTH).square().mean();
    let sample = |i: i64| vec![(i % 9).into()];
    let data = Loader::new((0..80).map(sample).collect::<Samples>(), &["x"]).unwrap();
    let data = data.batching(Batching::Sequences(8));
    let world = World::new(rank);
    let trainer = Trainer::new(net, loss, &Sgd::new(0.01)).unwrap().distributed(world.clone()).parts(parts);
    let mut trainer = trainer.progress(Progress::Quiet);
    // Both calls evaluate once and begin with the same exchanges.
    let mut measured = Vec::new();
    for until in [1, 2, 2 + STEPS] {
        let (before, copies) = (world.traffic(), copied());
        trainer.fit(&data, &data, Until::Steps(until)).unwrap();
        let now = world.traffic();
        let since = |of: fn(&Traffic) -> u64| of(&now) - of(&before);
        measured.push([since(|t| t.exchanges), since(|t| t.sent), copied() - copies]);
    }
    let [_, one, all] = measured[..] else { unreachable!("three runs") };
    let more: Vec<u64> = all.iter().zip(one).map(|(all, one)| all - one).collect();
    (Traffic { exchanges: more[0], sent: more[1], ..Traffic::default() }, more[2])
}

/// A step makes two exchanges. A rank whose parts form one subtree sends 2 (N − 1)/N times the bytes of the gradients, beside the
/// totals and the sums of metrics; and it copies a number of its gradients at most three times.
#[test]
fn a_step_sends_the_bytes_of_its_bound_in_two_exchanges() {
    for (size, parts) in [(2, 2), (3, 4), (4, 4)] {
        let measured: Vec<(Traffic, u64)> = std::thread::scope(|scope| {
            let ranks = threads(size).into_iter().map(|rank| scope.spawn(move || steps_of(rank, parts)));
            ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        let numbers = (WIDTH * WIDTH + 10 * WIDTH) as u64;
        let more = STEPS - 1;
        for (rank, (traffic, copies)) in measured.iter().enumerate() {
            assert_eq!(traffic.exchanges, 2 * more, "{size} ranks: exchanges of rank {rank}");
            let (bytes, others) = (4 * numbers * more, size as u64 - 1);
            let (least, most) =
                (2 * others * bytes / size as u64, others * 200 * parts.div_ceil(size as u64) * more);
            let sent = traffic.sent;
            assert!(
                least <= sent && sent <= least + most,
                "{size} ranks: rank {rank} sent {sent} of {least}"
            );
            let share = *copies as f64 / (numbers * more) as f64;
            let runs = if parts as usize > size { 2.0 } else { 0.0 };
            assert!(share <= 3.0 + runs, "{size} ranks: {share:.2} copies of a number on rank {rank}");
        }
    }
}
