//! The programs of the page `src/guide/lod.md`, whole: the page shows the lines that teach.

#[test]
fn one_level() -> unpadded::Result<()> {
    use unpadded::Variable;
    let words = Variable::from_sequences(&[vec![4i64, 9, 7], vec![], vec![2, 5]])?;
    assert_eq!((words.rows(), words.batch_size()), (5, 3));
    let lod = words.lod().unwrap();
    assert_eq!(lod.offsets(), [0, 3, 3, 5]);
    assert_eq!(lod.to_string(), "[[3, 0, 2]]"); // shown as lengths
    Ok(())
}

#[test]
fn several_levels() -> unpadded::Result<()> {
    use unpadded::Variable;
    let documents = Variable::from_nested(&[vec![vec![1i64, 2, 3], vec![4]], vec![vec![5, 6]]])?;
    let lod = documents.lod().unwrap();
    assert_eq!(lod.to_levels(), [vec![0, 2, 3], vec![0, 3, 4, 6]]);
    assert_eq!(lod.to_string(), "[[2, 1], [3, 1, 2]]");
    assert_eq!(documents.batch_size(), 2); // the entries of the top level are what a batch is made of
    assert_eq!(lod.row_offsets(0)?, [0, 4, 6]); // the rows of each document
    Ok(())
}

#[test]
fn several_levels_2() {
    use unpadded::Lod;
    assert!(Lod::from_lengths(&[vec![2, 1], vec![3, 1, 2]]).is_ok());
    let error = Lod::from_lengths(&[vec![2, 2], vec![3, 1, 2]]).unwrap_err(); // 4 sentences are declared, the second level has 3
    assert!(error.to_string().contains("level"), "{error}");
}

#[test]
fn in_a_program() {
    use unpadded::{Builder, DType};
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let tags = net.feed_like("tags", DType::I64, &[], words); // a tag for each word
    let other = net.feed("other", DType::I64, &[], 1);
    assert_eq!(net.describe(words), "`words`: i64[rows0] lod(0)");
    assert_eq!(net.describe(tags), "`tags`: i64[rows0] lod(0)");
    assert_eq!(net.describe(other), "`other`: i64[rows1] lod(1)");
}

#[test]
fn operators_and_the_lod() -> unpadded::Result<()> {
    use unpadded::executor::{Run, Scope, interpret};
    use unpadded::ndarray::array;
    use unpadded::ops::Pool;
    use unpadded::{Builder, DType, Lod, Variable};
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[1], 1);
    let mean = x.sequence_pool(Pool::Mean);
    let spread = mean.sequence_expand_as(x);
    let centred = x - spread; // of the same sequences again
    assert_eq!(net.describe(mean), "`sequence_pool`: f32[batch, 1]");

    let (registry, program) = (net.registry(), net.finish()?);
    let rows = Variable::sequences(array![[1.0f32], [2.0], [6.0], [4.0]], Lod::from_lengths1(&[3, 0, 1])?)?;
    let fed = [(x.id(), &rows)];
    let values = interpret(&program, &registry, &mut Scope::of(&program)?, &Run::infer(&fed))?;
    assert_eq!(values[&mean.id()].as_slice::<f32>()?, [3.0, 0.0, 4.0]);
    assert_eq!(values[&spread.id()].as_slice::<f32>()?, [3.0, 3.0, 3.0, 4.0]);
    assert_eq!(values[&centred.id()].as_slice::<f32>()?, [-2.0, -1.0, 3.0, 0.0]);
    Ok(())
}

#[test]
fn two_levels_in_a_model() -> unpadded::Result<()> {
    use unpadded::executor::{Run, Scope, interpret};
    use unpadded::layers::Embedding;
    use unpadded::ops::Pool;
    use unpadded::{Builder, DType, Variable};
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 2);
    let sentences = words.embedding(Embedding::new(1000, 16)).lstm(16).sequence_pool(Pool::Last);
    let documents = sentences.lstm(8).sequence_pool(Pool::Last);
    assert_eq!(net.describe(words), "`words`: i64[rows1] lod(0, 1)");
    assert_eq!(net.describe(sentences), "`sequence_pool`: f32[rows0, 16] lod(0)");
    assert_eq!(net.describe(documents), "`sequence_pool_2`: f32[batch, 8]");

    let (registry, program) = (net.registry(), net.finish()?);
    let texts = Variable::from_nested(&[vec![vec![1i64, 2, 3], vec![4]], vec![vec![5, 6]]])?;
    let fed = [(words.id(), &texts)];
    let values = interpret(&program, &registry, &mut Scope::of(&program)?, &Run::infer(&fed))?;
    assert_eq!(values[&sentences.id()].shape(), [3, 16]);
    assert_eq!(values[&sentences.id()].lod().unwrap().to_string(), "[[2, 1]]"); // sentences in documents
    assert_eq!(values[&documents.id()].shape(), [2, 8]);
    Ok(())
}

#[test]
fn padding_for_other_software() -> unpadded::Result<()> {
    use unpadded::executor::{Run, Scope, interpret};
    use unpadded::ndarray::array;
    use unpadded::{Builder, DType, Lod, Variable};
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[2], 1);
    let (padded, lengths) = x.sequence_pad(3, 0.0); // at most 3 rows a sequence
    let back = padded.sequence_unpad(lengths);
    assert_eq!(net.describe(padded), "`sequence_pad`: f32[batch, 3, 2]");

    let (registry, program) = (net.registry(), net.finish()?);
    let rows = Variable::sequences(array![[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]], Lod::from_lengths1(&[2, 1])?)?;
    let fed = [(x.id(), &rows)];
    let values = interpret(&program, &registry, &mut Scope::of(&program)?, &Run::infer(&fed))?;
    let (first, second) = ([1.0, 2.0, 3.0, 4.0, 0.0, 0.0], [5.0, 6.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(values[&padded.id()].as_slice::<f32>()?, [first, second].concat());
    assert_eq!(values[&lengths.id()].as_slice::<i64>()?, [2, 1]);
    assert_eq!(values[&back.id()], rows);
    Ok(())
}
