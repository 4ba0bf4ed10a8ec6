//! The programs of the page `src/guide/sparse.md`, whole: the page shows the lines that teach.

#[test]
fn embeddings_with_sparse_gradients() -> unpadded::Result<()> {
    use unpadded::ndarray::array;
    use unpadded::tensor::SelectedRows;
    // A table of 1000 rows, of which rows 7 and 3 were looked up, row 7 twice.
    let gradient = SelectedRows::new(1000, vec![7, 3, 7], array![[1.0f32, 1.0], [2.0, 2.0], [0.5, 0.5]])?;
    let merged = gradient.merge()?; // as the optimizer does, before any update or norm
    assert_eq!(merged.row_ids(), [3, 7]);
    assert_eq!(merged.value().as_slice::<f32>()?, [2.0, 2.0, 1.5, 1.5]);
    Ok(())
}

#[test]
fn exact_or_lazy_update_rules() -> unpadded::Result<()> {
    use unpadded::data::{Batching, Field, Loader, Samples};
    use unpadded::train::Progress;
    let samples: Samples = [vec![7i64, 4], vec![3]].map(|words| vec![Field::from(words)]).into_iter().collect();
    let data = Loader::new(samples, &["words"])?.batching(Batching::Sequences(1));
    use unpadded::layers::Embedding;
    use unpadded::ops::Pool;
    use unpadded::optimizer::{Adam, Optimizer, Sgd};
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType};
    let table_after = |embedding: Embedding, optimizer: &dyn Optimizer| -> unpadded::Result<Vec<f32>> {
        let net = Builder::new().seed(1);
        let words = net.feed("words", DType::I64, &[], 1);
        let loss = words.embedding(embedding).sequence_pool(Pool::Mean).linear(1).square().mean();
        let mut trainer = Trainer::new(net, loss, optimizer)?;
      trainer = trainer.progress(Progress::Quiet);
        trainer.fit(&data, &data, Until::Epochs(2))?; // four steps: words 7 and 4, word 3, and both again
        Ok(trainer.scope().get("embedding_0.weight")?.as_slice::<f32>()?.to_vec())
    };
    let (adam, table) = (Adam::new(1e-2), Embedding::new(50, 8));
    let distance = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let dense = table_after(table.clone(), &adam)?;
    let exact = table_after(table.clone().sparse(), &adam)?;
    let lazy = table_after(table.clone().sparse(), &adam.clone().lazy())?;
    assert!(distance(&dense, &exact) < 1e-6 && distance(&dense, &lazy) > 1e-3);

    let clipped = Sgd::new(0.1).clip_global_norm(1.0); // clipping keeps the gradient's rows
    assert!(distance(&table_after(table.clone(), &clipped)?, &table_after(table.sparse(), &clipped)?) < 1e-6);
    Ok(())
}

#[test]
fn bags_of_words() -> unpadded::Result<()> {
    use unpadded::data::{Field, Loader, Samples};
    use unpadded::train::Progress;
    use unpadded::data::{Limits, Vocabulary};
    use unpadded::optimizer::Adam;
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType};
    let texts = ["a fine film", "a dull dull film"];
    let words = Vocabulary::of(texts.iter().flat_map(|text| text.split(' ')), &Limits::default())?;
    let bags = words.bags(texts.iter().map(|text| text.split(' ')))?;
    assert_eq!(bags.get::<f32>(1, words.lookup("dull")? as usize)?, 2.0);
    assert_eq!(bags.entries(), 6);

    let net = Builder::new().seed(1);
    let x = net.feed_csr("bags", DType::F32, words.len(), 0);
    let label = net.feed("label", DType::I64, &[], 0);
    let logits = x.linear(2); // csr times dense; the gradient of the weight holds the rows of the words that occur
    let loss = logits.cross_entropy(label).mean();
    assert_eq!(net.describe(logits).split(": ").nth(1), Some("f32[batch, 2]"));
    let (columns, mut samples) = (words.len(), vec![]);
    for (row, label) in [0, 1].into_iter().enumerate() {
        let (indices, values) = bags.row::<f32>(row)?;
        samples.push(vec![Field::Sparse { columns, indices: indices.to_vec(), values: values.to_vec() }, Field::Int(label)]);
    }
    let data = Loader::new(samples.into_iter().collect::<Samples>(), &["bags", "label"])?;
    let mut trainer = Trainer::new(net, loss, &Adam::new(0.1).lazy())?;
    trainer = trainer.progress(Progress::Quiet);
    assert!(trainer.fit(&data, &data, Until::Epochs(20))?.last.loss() < 0.1); // `data`: the bags with labels 0 and 1
    Ok(())
}

#[test]
fn bags_of_words_2() -> unpadded::Result<()> {
    use unpadded::executor::{Run, Scope, interpret};
    use unpadded::ndarray::array;
    use unpadded::tensor::{Csr, StorageKind};
    use unpadded::{Builder, DType, Variable};
    let net = Builder::new();
    let x = net.feed_csr("bags", DType::F32, 3, 0);
    let root = x.sqrt(); // of 0 it is 0: still csr
    assert!(net.warnings().is_empty());
    let shares = x.softmax(); // none of its numbers is 0
    assert!(net.warnings()[0].to_string().contains("made dense"));

    let (registry, program) = (net.registry(), net.finish()?);
    let bags = Variable::new(Csr::from_dense(&array![[0.0f32, 4.0, 0.0]].into())?, None)?;
    let fed = [(x.id(), &bags)];
    let values = interpret(&program, &registry, &mut Scope::of(&program)?, &Run::infer(&fed))?;
    let [root, shares] = [root, shares].map(|var| values[&var.id()].storage().kind());
    assert_eq!((root, shares), (StorageKind::Csr, StorageKind::Dense));
    Ok(())
}

#[test]
fn bags_of_words_3() -> unpadded::Result<()> {
    use unpadded::executor::{Run, Scope, interpret};
    use unpadded::layers::EmbeddingBag;
    use unpadded::ops::BagPool;
    use unpadded::{Builder, DType, Variable};
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let mean = words.embedding_bag(EmbeddingBag::new(50, 2).pool(BagPool::Mean).sparse());
    assert_eq!(net.describe(mean).split(": ").nth(1), Some("f32[batch, 2]"));

    let (registry, program) = (net.registry(), net.finish()?);
    let texts = Variable::from_sequences(&[vec![4i64], vec![4, 4, 4], vec![]])?;
    let fed = [(words.id(), &texts)];
    let values = interpret(&program, &registry, &mut Scope::of(&program)?, &Run::infer(&fed))?;
    let means = values[&mean.id()].as_slice::<f32>()?;
    assert_eq!(means[..2], means[2..4]); // the mean of one vector, three times
    assert_eq!(means[4..], [0.0, 0.0]); // an empty text
    Ok(())
}

#[test]
fn tables_larger_than_memory() -> unpadded::Result<()> {
    use unpadded::data::{Field, Loader, Samples};
    let samples: Samples = [vec![1i64 << 39, 12], vec![7, 12]].map(|hashes| vec![Field::from(hashes)]).into_iter().collect();
    let data = Loader::new(samples, &["hashes"])?;
    use unpadded::layers::Embedding;
    use unpadded::optimizer::Adam;
    use unpadded::tensor::Storage;
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType};
    let net = Builder::new();
    let hashes = net.feed("hashes", DType::I64, &[], 1);
    let x = hashes.embedding(Embedding::new(1 << 40, 16).row_sparse());
    assert_eq!(net.describe(x).split(": ").nth(1), Some("f32[rows0, 16] lod(0)"));
    let mut trainer = Trainer::new(net, x.linear(1).square().mean(), &Adam::new(1e-2).lazy())?;
    trainer = trainer.progress(unpadded::train::Progress::Quiet);
    trainer.fit(&data, &data, Until::Epochs(2))?; // two texts, with the hashes 2^39 and 12, and 7 and 12
    let Storage::SelectedRows(rows) = trainer.scope().value("embedding_0.weight")? else { unreachable!() };
    assert_eq!(rows.row_ids(), [7, 12, 1 << 39]); // the rows that exist
    Ok(())
}

#[test]
fn several_trainers_of_one_model() -> unpadded::Result<()> {
    use unpadded::ndarray::array;
    use unpadded::store::{KeyValueStore, LocalStore, Consistency};
    use unpadded::tensor::SelectedRows;
    use unpadded::ops;
    let values = LocalStore::new(&ops::catalogue(), 4)?; // four shards
    let mut worker = values.workers(1, Consistency::Asynchronous { staleness: None })?.remove(0);
    worker.init(&"table".into(), array![[1.0], [2.0], [3.0]].into())?;
    worker.push(&"table".into(), SelectedRows::new(3, vec![2, 0, 2], array![[1.0], [1.0], [1.0]])?.into(), 1.0)?;
    assert_eq!(worker.pull(&"table".into())?.as_slice::<f64>()?, [2.0, 2.0, 5.0]);
    Ok(())
}
