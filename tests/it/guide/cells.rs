//! The programs of the page `src/guide/cells.md`, whole: the page shows the lines that teach.

#[test]
fn memories() -> unpadded::Result<()> {
    use unpadded::executor::{Run, Scope, interpret};
    use unpadded::ndarray::array;
    use unpadded::{Builder, DType, Lod, Variable};
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[1], 1);
    let (sums, total) = net.recurrent(x, |step, x_t| {
        let before = step.memory(1); // one number a row; zero before the first step
        let sum = 0.5 * before + x_t;
        step.update(before, sum);
        (sum, step.last(before)) // the value at every step, and what the memory ends as
    });

    let (registry, program) = (net.registry(), net.finish()?);
    let rows = Variable::sequences(array![[1.0f32], [2.0], [4.0], [5.0]], Lod::from_lengths1(&[3, 0, 1])?)?;
    let fed = [(x.id(), &rows)];
    let values = interpret(&program, &registry, &mut Scope::of(&program)?, &Run::infer(&fed))?;
    assert_eq!(values[&sums.id()].as_slice::<f32>()?, [1.0, 2.5, 5.25, 5.0]); // the rows and the LoD of `x`
    assert_eq!(values[&total.id()].as_slice::<f32>()?, [5.25, 0.0, 5.0]); // one row a sequence, also of the empty one
    Ok(())
}

#[test]
fn a_gated_cell_as_a_function() -> unpadded::Result<()> {
    use unpadded::executor::{Run, Scope, interpret};
    use unpadded::{Builder, DType, Lod, Var, Variable, ndarray::Array2};

    #[track_caller]
    fn gated(net: &Builder, x: Var, width: usize) -> Var {
        net.part("gated", |net| {
            net.recurrent(x, |step, x_t| {
                let h_prev = step.memory(width);
                let z = (x_t.linear(width) + h_prev.linear(width)).sigmoid();
                let new = (x_t.linear(width) + h_prev.linear(width)).tanh();
                let h = h_prev + z * (new - h_prev);
                step.update(h_prev, h);
                h
            })
        })
    }

    let net = Builder::new().seed(1);
    let x = net.feed("x", DType::F32, &[8], 1);
    let h = gated(&net, gated(&net, x, 16), 16); // two layers, each with weights of its own
    assert_eq!(net.describe(h).split(": ").nth(1), Some("f32[rows0, 16] lod(0)"));
    let (registry, program) = (net.registry(), net.finish()?);
    let names: Vec<&str> = program.parameters().map(|id| program.var(id).name.as_str()).collect();
    assert_eq!(names[0], "gated_0.linear_0.weight");
    assert_eq!(names.len(), 16);

    let run = |rows: Array2<f32>, lengths: &[usize]| {
        let rows = Variable::sequences(rows, Lod::from_lengths1(lengths)?)?;
        let mut values = interpret(&program, &registry, &mut Scope::of(&program)?, &Run::infer(&[(x.id(), &rows)]))?;
        Ok::<_, unpadded::Error>(values.remove(&h.id()).unwrap())
    };
    let rows = Array2::from_shape_fn((5, 8), |(row, column)| (row + column) as f32 / 10.0);
    let both = run(rows.clone(), &[2, 3])?;
    let second = run(rows.slice_move(unpadded::ndarray::s![2.., ..]), &[3])?;
    assert_eq!(both.as_slice::<f32>()?[2 * 16..], *second.as_slice::<f32>()?); // the same bits, alone or in a batch
    Ok(())
}

#[test]
fn several_states() -> unpadded::Result<()> {
    use unpadded::executor::{Run, Scope, interpret};
    use unpadded::{Lod, Variable, ndarray::Array2};
    use unpadded::program::Recurrence;
    use unpadded::{Builder, DType};
    let net = Builder::new().seed(1);
    let x = net.feed("x", DType::F32, &[8], 1);
    let backwards = Recurrence { reverse: true, ..Recurrence::default() };
    let (h, slow) = net.recurrent_with(backwards, x, |step, x_t| {
        let [h_prev, slow_prev] = [16, 16].map(|width| step.memory(width));
        let h = (x_t.linear(16) + h_prev.linear(16) + slow_prev.linear(16)).tanh();
        let slow = 0.9 * slow_prev + 0.1 * h;
        step.update(h_prev, h);
        step.update(slow_prev, slow);
        (h, step.last(slow_prev))
    });
    assert_eq!(net.describe(h).split(": ").nth(1), Some("f32[rows0, 16] lod(0)"));
    assert_eq!(net.describe(slow).split(": ").nth(1), Some("f32[batch, 16]"));
    let (registry, program) = (net.registry(), net.finish()?);
    let run = |rows: Array2<f32>| -> unpadded::Result<Vec<f32>> {
        let rows = Variable::sequences(rows, Lod::from_lengths1(&[3])?)?;
        let values = interpret(&program, &registry, &mut Scope::of(&program)?, &Run::infer(&[(x.id(), &rows)]))?;
        assert_eq!((values[&h.id()].shape(), values[&slow.id()].shape()), (&[3, 16][..], &[1, 16][..]));
        Ok(values[&h.id()].as_slice::<f32>()?.to_vec())
    };

    // `run` computes `h` for one sequence of three rows.
    let mut rows = Array2::from_elem((3, 8), 0.5);
    let before = run(rows.clone())?;
    rows[[0, 0]] = 9.0; // the row that is read last
    let after = run(rows)?;
    assert!(before[..16] != after[..16] && before[16..] == after[16..]);
    Ok(())
}

#[test]
fn a_state_that_is_a_matrix() -> unpadded::Result<()> {
    use unpadded::op::testing;
    use unpadded::{Builder, DType, Var, Variable};

    #[track_caller]
    fn fast_weights(net: &Builder, x: Var, dtype: DType) -> Var {
        net.recurrent(x, |step, x_t| {
            let c_prev = step.memory_of(dtype, &[4, 6]);
            let (v, k, q) = (x_t.linear(4), x_t.linear(6), x_t.linear(6));
            let f = x_t.linear(4).sigmoid();
            let f = f.outer(k.fill_like(1.0)); // [4] to [4, 6]: a vector is not repeated over the columns of a matrix
            let c = f * c_prev + v.outer(k);
            step.update(c_prev, c);
            c.matvec(q)
        })
    }

    let net = Builder::new().seed(1);
    let x = net.feed("x", DType::F32, &[8], 1);
    let h = fast_weights(&net, x, DType::F32);
    assert_eq!(net.describe(h).split(": ").nth(1), Some("f32[rows0, 4] lod(0)"));

    // In a test: the gradients of every parameter and of the input are central differences.
    let words = Variable::from_sequences(&[vec![0.5, -0.25, 1.0], vec![], vec![2.0]])?;
    testing::check_gradients(Builder::new(), &[words], &|net, inputs| {
        vec![fast_weights(net, inputs[0].linear(8), DType::F64)]
    })?;
    Ok(())
}

#[test]
fn several_inputs_and_static_ones() -> unpadded::Result<()> {
    use unpadded::executor::{Run, Scope, interpret};
    use unpadded::{Lod, Variable, ndarray::Array2};
    use unpadded::{Builder, DType};
    let net = Builder::new().seed(1);
    let words = net.feed("words", DType::F32, &[8], 1);
    let tags = net.feed_like("tags", DType::F32, &[4], words);
    let topic = net.feed("topic", DType::F32, &[5], 0); // one row a sequence
    let start = topic.linear(16).tanh();
    let h = net.recurrent((words, tags), |step, (word, tag)| {
        let h_prev = step.memory_from(start); // starts from the topic instead of zero
        let h = (word.linear(16) + tag.linear(16) + topic.linear(16) + h_prev.linear(16)).tanh();
        step.update(h_prev, h);
        h
    });

    let (registry, program) = (net.registry(), net.finish()?);
    let lod = Lod::from_lengths1(&[2, 2])?;
    let [eight, four] = [8, 4].map(|columns| Variable::sequences(Array2::from_elem((4, columns), 0.5f32), lod.clone()));
    let (eight, four) = (eight?, four?);
    let run = |topics: [f32; 2]| -> unpadded::Result<Vec<f32>> {
        let topics = Variable::dense(Array2::from_shape_fn((2, 5), |(row, _)| topics[row]));
        let fed = [(words.id(), &eight), (tags.id(), &four), (topic.id(), &topics)];
        let values = interpret(&program, &registry, &mut Scope::of(&program)?, &Run::infer(&fed))?;
        Ok(values[&h.id()].as_slice::<f32>()?.to_vec())
    };
    // `run` computes `h` for two sequences that have equal words and tags, and these topics.
    let (same, other) = (run([1.0, 1.0])?, run([1.0, 2.0])?);
    assert_eq!(same[..32], same[32..]);
    assert!(other[..32] == same[..32] && other[32..] != same[32..]); // the second sequence alone has another topic
    Ok(())
}

#[test]
fn residual_and_dropout() -> unpadded::Result<()> {
    use unpadded::executor::{Run, Scope, interpret};
    use unpadded::{Builder, DType, Lod, Variable, ndarray::Array2};
    let net = Builder::new().seed(1);
    let x = net.feed("x", DType::F32, &[16], 1);
    let y = net.recurrent(x, |step, x_t| {
        let h_prev = step.memory(16);
        let h = (x_t.linear(16) + h_prev.variational_dropout(0.2).linear(16)).tanh();
        step.update(h_prev, h);
        x_t + h.dropout(0.1)
    });

    let (registry, program) = (net.registry(), net.finish()?);
    let rows = Variable::sequences(Array2::from_elem((3, 16), 0.5f32), Lod::from_lengths1(&[3])?)?;
    let fed = [(x.id(), &rows)];
    let outputs = |run: Run<'_>| {
        let mut values = interpret(&program, &registry, &mut Scope::of(&program)?, &run)?;
        Ok::<_, unpadded::Error>(values.remove(&y.id()).unwrap())
    };
    assert_eq!(outputs(Run::train(&fed, 0))?, outputs(Run::train(&fed, 0))?); // the seed and the step decide what is left out
    assert_ne!(outputs(Run::train(&fed, 0))?, outputs(Run::train(&fed, 1))?);
    assert_ne!(outputs(Run::train(&fed, 0))?, outputs(Run::infer(&fed))?); // inference has no dropout
    Ok(())
}

#[test]
fn a_step_over_whole_sequences() -> unpadded::Result<()> {
    use unpadded::executor::{Run, Scope, interpret};
    use unpadded::ops::Pool;
    use unpadded::program::Recurrence;
    use unpadded::{Builder, DType, Lod, Variable, ndarray::Array2};
    let net = Builder::new();
    let words = net.feed("words", DType::F32, &[8], 2);
    let over_sentences = Recurrence { level: Some(0), ..Recurrence::default() };
    let states = net.recurrent_with(over_sentences, words, |step, sentence| {
        let before = step.memory(16); // of the document so far
        let read = sentence.lstm(16).sequence_pool(Pool::Last);
        let after = (read.linear(16) + before.linear(16)).tanh();
        step.update(before, after);
        after
    });
    assert_eq!(net.describe(states).split(": ").nth(1), Some("f32[rows0, 16] lod(0)")); // a row for each sentence

    let (registry, program) = (net.registry(), net.finish()?);
    let documents = Lod::from_lengths(&[vec![2, 1], vec![3, 1, 2]])?; // of 2 sentences and of 1, which have 3, 1 and 2 words
    let rows = Variable::sequences(Array2::<f32>::ones((6, 8)), documents)?;
    let fed = [(words.id(), &rows)];
    let values = interpret(&program, &registry, &mut Scope::of(&program)?, &Run::infer(&fed))?;
    let found = &values[&states.id()];
    assert_eq!((found.shape(), found.lod().unwrap().to_string().as_str()), (&[3, 16][..], "[[2, 1]]"));
    Ok(())
}

#[test]
fn operators_in_a_step() {
    use unpadded::{Builder, DType};
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    net.recurrent(x, |step, x_t| {
        let h = step.memory(4);
        step.update(h, x_t + h);
        x_t - h.mean()
    });
    let error = net.finish().unwrap_err().to_string();
    assert!(error.contains("mean"), "{error}");
}
