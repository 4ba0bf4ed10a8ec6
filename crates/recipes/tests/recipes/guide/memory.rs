//! The program of the page `crates/recipes/src/guide/memory.md`, whole: the page shows the lines that teach.

#[test]
fn the_memory_of_batches_and_a_limit() -> unpadded::Result<()> {
    use unpadded::data::{Batching, Data, Field, Loader, Samples};
    use unpadded::layers::Embedding;
    use unpadded::ops::Pool;
    use unpadded::optimizer::Adam;
    use unpadded::train::Trainer;
    use unpadded::{Builder, DType};
    let samples: Samples = (0..64).map(|i| vec![Field::from(vec![i % 7; 50]), (i % 2).into()]).collect();
    let data = Loader::new(samples, &["words", "label"])?.batching(Batching::Sequences(32));
    let net = Builder::new().seed(1);
    let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    let h = words.embedding(Embedding::new(9, 8).sparse()).lstm(8).sequence_pool(Pool::Last);
    let loss = h.linear(2).cross_entropy(label).mean();
    let mut trainer = Trainer::new(net, loss, &Adam::new(0.01).lazy())?.memory_limit(100_000_000);
    for batch in data.batches(None, 0)? {
        let memory = trainer.memory(&batch?)?;
        println!("{} bytes, of which {} for values and gradients", memory.total(), memory.buffers);
        assert!(memory.buffers > 32 * 50 * 8 * 4 && memory.total() > memory.buffers);
    }
    Ok(())
}
