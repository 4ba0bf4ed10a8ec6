//! A model for each family of operators, with batches whose memory exceeds the slack of the comparison.

use ndarray::Array1;
use unpadded::layers::{Conv, Crf, Embedding, EmbeddingBag, Lstm, Norm, init};
use unpadded::ops::{BagPool, Context, DotAttention, Pool, SampledClasses};
use unpadded::tensor::{Csr, Dense, StorageKind};
use unpadded::{Builder, DType, Lod, Var, Variable};

use crate::models::Random;

const WIDTH: usize = 48;
const TAGS: usize = 24;
const VOCABULARY: usize = 900;

/// A model and the makers of its feeds: each makes a value for sequences of the given lengths.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) build: fn(&Builder) -> Var,
    pub(crate) feeds: &'static [(&'static str, MakeFeed)],
}

/// A function that makes the value of a feed for sequences of the given lengths.
pub(crate) type MakeFeed = fn(&[usize], &mut Random) -> Variable;

fn rows(lengths: &[usize], random: &mut Random) -> Variable {
    let lod = Lod::from_lengths1(lengths).unwrap();
    Variable::sequences(floats(lod.rows(), WIDTH, random), lod).unwrap()
}

fn others(lengths: &[usize], random: &mut Random) -> Variable {
    rows(&lengths.iter().map(|n| 1 + n * 2 / 3).collect::<Vec<_>>(), random)
}

fn sentences(_: &[usize], random: &mut Random) -> Variable {
    Variable::dense(floats(64, WIDTH, random))
}

fn floats(rows: usize, width: usize, random: &mut Random) -> Dense {
    let numbers = (0..rows * width).map(|_| random.below(2001) as f32 / 1000.0 - 1.0).collect();
    Dense::from_vec(&[rows, width], numbers).unwrap()
}

fn ids(lengths: &[usize], below: usize, random: &mut Random) -> Variable {
    let lod = Lod::from_lengths1(lengths).unwrap();
    let ids = Array1::from_shape_fn(lod.rows(), |_| random.below(below) as i64);
    Variable::new(Dense::from(ids), Some(lod)).unwrap()
}

fn words(lengths: &[usize], random: &mut Random) -> Variable {
    ids(lengths, VOCABULARY, random)
}

/// Rows with up to 24 entries, in ascending order of the columns.
fn bags(lengths: &[usize], random: &mut Random) -> Variable {
    let lod = Lod::from_lengths1(lengths).unwrap();
    let (mut starts, mut columns) = (vec![0], Vec::new());
    for _ in 0..lod.rows() {
        let first = columns.len();
        columns.extend((0..random.below(25)).map(|_| random.below(VOCABULARY) as i64));
        columns[first..].sort_unstable();
        starts.push(columns.len() as i64);
    }
    let values = Array1::from_elem(columns.len(), 0.5f32);
    let csr = Csr::new([lod.rows(), VOCABULARY], starts, columns, values).unwrap();
    Variable::new(csr, Some(lod)).unwrap()
}

fn tags(lengths: &[usize], random: &mut Random) -> Variable {
    ids(lengths, TAGS, random)
}

/// A third of the rows, and no tag 0.
fn labels(lengths: &[usize], random: &mut Random) -> Variable {
    let lod = Lod::from_lengths1(&lengths.iter().map(|n| n / 3).collect::<Vec<_>>()).unwrap();
    let ids = Array1::from_shape_fn(lod.rows(), |_| 1 + random.below(TAGS - 1) as i64);
    Variable::new(Dense::from(ids), Some(lod)).unwrap()
}

fn feed(net: &Builder) -> Var {
    feed_named(net, "x")
}

/// A feed plus a parameter, so that the gradient of the sum is computed.
fn feed_named(net: &Builder, name: &str) -> Var {
    let x = net.feed(name, DType::F32, &[WIDTH], 1);
    x + net.parameter(&format!("start of {name}"), DType::F32, &[WIDTH], init::zeros())
}

fn matrix(net: &Builder, name: &str, dims: &[usize]) -> Var {
    net.parameter(name, DType::F32, dims, init::uniform(-0.1, 0.1))
}

fn loss(net: &Builder, parts: &[Var]) -> Var {
    let sums = parts.iter().map(|&part| net.sum(net.square(part)));
    sums.reduce(|all, sum| all + sum).unwrap()
}

pub(crate) const FAMILIES: &[Family] = &[
    Family {
        name: "convolution",
        feeds: &[("x", rows)],
        build: |net| {
            let x = feed(net).conv(Conv::new(5, WIDTH));
            let x = x.conv(Conv::new(3, WIDTH).groups(4).padding_init(init::zeros()));
            loss(net, &[x.conv(Conv::new(3, WIDTH).groups(WIDTH))])
        },
    },
    Family {
        name: "row convolution",
        feeds: &[("x", rows)],
        build: |net| {
            let x = feed(net).row_conv(matrix(net, "filter", &[4, WIDTH]));
            loss(net, &[x.sequence_conv(matrix(net, "other", &[3 * WIDTH, 200]), Context::new(3))])
        },
    },
    Family {
        name: "self-attention",
        feeds: &[("x", rows)],
        build: |net| {
            let x = feed(net);
            let (q, k) = (x.rotary(4), x.rotary(4));
            let bias = matrix(net, "bias", &[4, 9]);
            let seen = net.dot_attention(q, k, x, DotAttention::heads(4).bias(bias));
            loss(net, &[seen, net.dot_attention(seen, k, seen, DotAttention::heads(2).causal())])
        },
    },
    Family {
        name: "attention to others",
        feeds: &[("x", rows), ("y", others)],
        build: |net| {
            let (x, y) = (feed(net), feed_named(net, "y"));
            let single = y.sequence_pool(Pool::Last);
            let one = net.dot_attention(single, x, x, DotAttention::heads(4));
            loss(net, &[one, net.dot_attention(x, y, y, DotAttention::heads(1))])
        },
    },
    Family {
        name: "additive attention",
        feeds: &[("x", rows)],
        build: |net| {
            let x = feed(net);
            let v = matrix(net, "v", &[WIDTH]);
            let all = net.recurrent(x, |step, row| {
                let state = step.memory(WIDTH);
                let read = step.additive_attention(state, x, x, v);
                step.update(state, step.tanh(step.add(read, row)));
                state
            });
            let query = x.sequence_pool(Pool::Mean);
            loss(net, &[all, net.additive_attention(query, x, x, v)])
        },
    },
    Family {
        name: "embedding bags",
        feeds: &[("words", words)],
        build: |net| {
            let words = net.feed("words", DType::I64, &[], 1);
            let bag = |pool| words.embedding_bag(EmbeddingBag::new(VOCABULARY, WIDTH).pool(pool).sparse());
            let weights = words.embedding(Embedding::new(VOCABULARY, 1));
            let weighted = words.embedding_bag(EmbeddingBag::new(VOCABULARY, WIDTH).weighted(weights));
            loss(net, &[bag(BagPool::Sum), bag(BagPool::Max), bag(BagPool::Mean), weighted])
        },
    },
    Family {
        name: "tags",
        feeds: &[("x", rows), ("tags", tags)],
        build: |net| {
            let x = feed(net);
            let tags = net.feed_like("tags", DType::I64, &[], x);
            let scores = x.linear(TAGS);
            let crf = net.layer(Crf::new());
            net.sum(crf.loss(scores, tags))
        },
    },
    Family {
        name: "marginals and paths of tags",
        feeds: &[("x", rows)],
        build: |net| {
            let scores = feed(net).linear(TAGS);
            let transitions = matrix(net, "transitions", &[TAGS + 2, TAGS]);
            let (paths, _) = net.viterbi_decode(scores, transitions, 1, &[]);
            let (many, _) = net.viterbi_decode(scores, transitions, 5, &[]);
            let likely = net.crf_marginals(scores, transitions, &[]);
            let read = [net.cast(paths, DType::F32), net.cast(many, DType::F32)];
            loss(net, &[scores, likely, read[0], read[1]])
        },
    },
    Family {
        name: "ctc",
        feeds: &[("x", rows), ("labels", labels)],
        build: |net| {
            let labels = net.feed("labels", DType::I64, &[], 1);
            let scores = feed(net).linear(TAGS);
            let found = scores.ctc_greedy(0);
            let distance = net.edit_distance(found, labels, false);
            net.sum(scores.ctc_loss(labels, 0, true)) + net.sum(distance)
        },
    },
    Family {
        name: "norms",
        feeds: &[("x", rows)],
        build: |net| {
            let x = feed(net).norm(Norm::layer()).norm(Norm::rms()).norm(Norm::batch());
            loss(net, &[x.softmax(), x.log_softmax(), x.linear(1).sequence_softmax()])
        },
    },
    Family {
        name: "products",
        feeds: &[("x", rows), ("y", sentences)],
        build: |net| {
            let x = feed(net);
            let y = net.feed_stored("y", DType::F32, &[Some(64), Some(WIDTH)], StorageKind::Dense);
            let weight = matrix(net, "weight", &[WIDTH, 200]);
            let out = net.matmul(net.matmul(y, weight), matrix(net, "other", &[200, WIDTH]));
            let row = x.linear(16);
            let outer = net.outer(row, row);
            loss(
                net,
                &[
                    out,
                    net.matvec(outer, row),
                    net.product_transposed(x, matrix(net, "last", &[200, WIDTH]), None),
                ],
            )
        },
    },
    Family {
        name: "pools and order",
        feeds: &[("x", rows), ("y", others)],
        build: |net| {
            let (x, y) = (feed(net), feed_named(net, "y"));
            let many = x.sequence_topk_pool(&[1, 8], 0.0);
            let sums = [x.cumulative_sum(), x.cumulative_sum_features()];
            let order = net.reorder_by_rank(x, y);
            loss(net, &[x.sequence_pool(Pool::Max), many, sums[0], sums[1], order, x.sequence_reverse()])
        },
    },
    Family {
        name: "dropout and choices",
        feeds: &[("x", rows)],
        build: |net| {
            let x = feed(net);
            let chosen = net.select(net.less(x, 0.5), x, net.dropout(x, 0.4));
            let (best, _) = x.top_k(7);
            let row = matrix(net, "factor", &[WIDTH]);
            loss(net, &[chosen, best, x * row, x / (row + 3.0), x.variational_dropout(0.3)])
        },
    },
    Family {
        name: "sampled classes",
        feeds: &[("x", rows), ("words", words)],
        build: |net| {
            let x = feed(net);
            let words = net.feed_like("words", DType::I64, &[], x);
            let [a, b] = ["a", "b"].map(|name| matrix(net, name, &[VOCABULARY, WIDTH]));
            let sparse = SampledClasses::new(20).gradient(StorageKind::SelectedRows);
            let (nce, _) = net.nce(x, a, words, sparse);
            let dense = SampledClasses::new(10).gradient(StorageKind::Dense);
            let (softmax, _) = net.sampled_softmax(x, b, words, dense);
            net.sum(nce) + net.sum(softmax)
        },
    },
    Family {
        name: "sparse rows",
        feeds: &[("x", rows)],
        build: |net| {
            let x = feed(net);
            let sparse = net.to_csr(net.relu(x));
            let squares = net.to_dense(net.square(sparse));
            loss(net, &[squares, net.to_dense(sparse * x)])
        },
    },
    Family {
        name: "sparse products",
        feeds: &[("bags", bags)],
        build: |net| {
            let bags = net.feed_csr("bags", DType::F32, VOCABULARY, 1);
            let (rows, tall) = (bags.linear(WIDTH), matrix(net, "tall", &[VOCABULARY, WIDTH]));
            let dense = net.transposed_dot(bags, rows);
            let both = net.transposed_dot(bags, bags);
            let squares = net.to_dense(net.square(bags)).linear(16);
            loss(net, &[rows, net.dot(bags, tall), net.to_dense(dense), net.to_dense(both), squares])
        },
    },
    Family {
        name: "erased words",
        feeds: &[("words", words)],
        build: |net| {
            let words = net.feed("words", DType::I64, &[], 1);
            let most: Vec<i64> = (0..VOCABULARY as i64 * 2 / 3).collect();
            let left = net.sequence_erase(words, &most);
            let rows = left.embedding(Embedding::new(VOCABULARY, WIDTH).sparse());
            loss(net, &[rows.lstm(Lstm::new(WIDTH)), rows])
        },
    },
];
