//! The adaptive softmax: rare classes are grouped in clusters, and the loss computes the logits of a cluster only for
//! rows with a label in the cluster.

use super::layer::{at_least_one, layer_name};
use crate::error::Error;
use crate::layers::{Instance, Layer, Linear};
use crate::program::construction::vars::unknown_of;
use crate::program::{Builder, Var};

/// An adaptive softmax over many classes, which must be ordered from the most frequent to the rarest. The loss costs
/// about as much as a softmax over the frequent classes alone (Grave et al., "Efficient softmax approximation for
/// GPUs", 2017). A linear layer, the head, computes the logits of the first cluster of classes, and one logit for each
/// further cluster. The loss computes the logits of a further cluster only for rows with a label in the cluster. The
/// logits of rarer classes are computed from narrower vectors: p(class) = softmax(x · W_head)_cluster · softmax((x ·
/// P_cluster) · W_cluster)_class.
///
/// ```
/// use unpadded::layers::{AdaptiveSoftmax, Embedding};
/// use unpadded::{Builder, DType};
/// let net = Builder::new();
/// let words = net.feed("words", DType::I64, &[], 1);
/// let next = net.feed_like("next", DType::I64, &[], words);
/// let state = words.embedding(Embedding::new(10_000, 64)).lstm(64);
/// let softmax = net.layer(AdaptiveSoftmax::new(10_000, &[1_000, 4_000]));
/// let losses = softmax.loss(state, next); // −ln p(label), of each row
/// let log_p = softmax.of(state); // of all classes, to predict with
/// assert_eq!(net.spec(losses).unwrap().dims(), [-1]);
/// assert_eq!(net.spec(log_p).unwrap().dims(), [-1, 10_000]);
/// # net.finish()?;
/// # Ok::<(), unpadded::Error>(())
/// ```
///
/// Parameters: `head.weight` `[in, first + clusters]` and `head.bias`, where `first` is the number of classes in the first
/// cluster; for each further cluster k = 1, 2, …, `project_k.weight` `[in, in / divide^k]` and `cluster_k.weight`
/// `[in / divide^k, classes of cluster k]`.
#[derive(Debug, Clone, PartialEq)]
pub struct AdaptiveSoftmax {
    ends: Vec<usize>,
    divide: usize,
    head_bias: bool,
    name: Option<String>,
}

impl AdaptiveSoftmax {
    /// Makes an adaptive softmax over `classes` classes, divided into clusters at the ascending `cutoffs`. The head has the
    /// classes below the first cutoff; each further cluster has the classes from one cutoff up to the next cutoff; the last
    /// cluster has all classes from the last cutoff on. The vectors of each cluster are a quarter as wide as the vectors of the
    /// previous cluster.
    pub fn new(classes: usize, cutoffs: &[usize]) -> Self {
        let ends = cutoffs.iter().copied().chain([classes]).collect();
        Self { ends, divide: 4, head_bias: true, name: None }
    }

    /// Sets the divisor `divide` of the widths (default: 4). The vectors of the k-th further cluster are as wide as the
    /// input divided by `divide`^k, and at least 1 wide.
    #[must_use]
    pub fn divide(self, divide: usize) -> Self {
        Self { divide, ..self }
    }

    /// Omits the bias of the head.
    #[must_use]
    pub fn without_bias(self) -> Self {
        Self { head_bias: false, ..self }
    }
}

layer_name!(AdaptiveSoftmax, "adaptive_softmax");

/// The layers of an [`AdaptiveSoftmax`].
#[derive(Debug, Clone, PartialEq)]
pub struct AdaptiveWeights {
    /// The head: the layer from the input to the logits of the first cluster's classes and of the further clusters.
    pub head: Instance<Linear>,
    /// For each further cluster: the layer that projects the input to narrower vectors, and the layer from these vectors to the
    /// logits of the cluster's classes.
    pub clusters: Vec<[Instance<Linear>; 2]>,
}

impl Layer for AdaptiveSoftmax {
    type Weights = AdaptiveWeights;

    fn kind(&self) -> &str {
        "adaptive_softmax"
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn weights(&self, net: &Builder, x: Var) -> Option<AdaptiveWeights> {
        let width = net.spec(x)?.width();
        self.ordered(net)?;
        at_least_one(net, "`divide`", "adaptive_softmax", self.divide)?;
        let head = Linear::new(self.of_head()).named("head");
        let head = net.layer(if self.head_bias { head } else { head.without_bias() });
        let cluster = |(k, pair): (usize, &[usize])| {
            let narrow = (1..=k + 1).fold(width, |width, _| width / self.divide).max(1);
            let part =
                |to: usize, name: &str| Linear::new(to).without_bias().named(&format!("{name}_{}", k + 1));
            [net.layer(part(narrow, "project")), net.layer(part(pair[1] - pair[0], "cluster"))]
        };
        Some(AdaptiveWeights { head, clusters: self.ends.windows(2).enumerate().map(cluster).collect() })
    }

    /// Returns the logarithms of the probabilities of all classes, `[rows, classes]`.
    fn run(&self, net: &Builder, x: Var, weights: &AdaptiveWeights) -> Var {
        if self.fits(net, weights).is_none() {
            return net.unknown();
        }
        let (first, head) = (self.ends[0], self.head(net, x, weights).log_softmax());
        let clusters = (0..weights.clusters.len())
            .map(|k| head.slice(first + k..first + k + 1) + self.cluster(net, x, weights, k).log_softmax());
        let parts: Vec<Var> = std::iter::once(head.slice(0..first)).chain(clusters).collect();
        net.concat(&parts)
    }
}

impl AdaptiveSoftmax {
    /// Returns the number of columns of the head: one per class below the first cutoff, and one per further cluster. The number
    /// does not overflow if the cutoffs ascend.
    fn of_head(&self) -> usize {
        self.ends[0] + (self.ends.len() - 1)
    }

    fn ordered(&self, net: &Builder) -> Option<()> {
        if self.ends[0] > 0 && self.ends.is_sorted_by(|a, b| a < b) {
            return Some(());
        }
        let expected = "cutoffs that ascend, from at least 1 to below the number of classes";
        let got = format!("{:?}", self.ends);
        net.refuse(Error::new("classes of layer `adaptive_softmax`", expected, got));
        None
    }

    /// Checks that the cutoffs ascend, and that the weights have one cluster for each cutoff. Weights that were made for other
    /// cutoffs would compute a softmax over other classes.
    fn fits(&self, net: &Builder, weights: &AdaptiveWeights) -> Option<()> {
        self.ordered(net)?;
        let (cutoffs, clusters) = (self.ends.len() - 1, weights.clusters.len());
        if clusters == cutoffs {
            return Some(());
        }
        let what = "clusters of the weights of layer `adaptive_softmax`";
        net.refuse(Error::new(what, format!("{cutoffs}, one per cutoff"), clusters.to_string()));
        None
    }

    fn head(&self, net: &Builder, x: Var, weights: &AdaptiveWeights) -> Var {
        classes(net, weights.head.of(x), "head", self.of_head())
    }

    /// Returns the logits of the classes of further cluster `k`; `k` = 0 is the first cluster after the head.
    fn cluster(&self, net: &Builder, x: Var, weights: &AdaptiveWeights, k: usize) -> Var {
        let [project, of_classes] = &weights.clusters[k];
        let logits = of_classes.of(project.of(x));
        classes(net, logits, &format!("cluster {}", k + 1), self.ends[k + 1] - self.ends[k])
    }
}

/// Returns `logits` if the variable has `expected` columns, one per class; else records an error.
fn classes(net: &Builder, logits: Var, named: &str, expected: usize) -> Var {
    match net.spec_of_tensor(logits) {
        Some(spec) if spec.width() != expected => {
            let what = format!("{named} of layer `adaptive_softmax`");
            net.refuse(Error::new(what, format!("{expected} classes"), spec.width().to_string()))
        }
        _ => logits,
    }
}

impl Instance<AdaptiveSoftmax> {
    /// Computes the loss −ln p(label) of each row of `x`, `[rows]`. The logits of a further cluster are computed only
    /// for the rows with a label in the cluster.
    ///
    /// # Errors
    /// If `x` has no LoD or does not hold rows of floats, `labels` does not have one whole number per row of `x`, the cutoffs
    /// do not ascend, or given weights ([`Builder::layer_with`]) were made for other cutoffs; when the program runs, if a label
    /// is not below the number of classes; in a step block, if the labels depend on a memory.
    #[track_caller]
    pub fn loss(&self, x: Var, labels: Var) -> Var {
        let Some(net) = Builder::of(x) else { return unknown_of(x) };
        self.append(&net, x, |softmax, weights| {
            if softmax.fits(&net, weights).is_none() {
                return net.unknown();
            }
            let (head, cluster, within) = net.class_clusters(labels, &softmax.ends);
            let clusters = (0..weights.clusters.len()).map(|k| {
                let among = cluster.equal((k + 1) as f64);
                let [x, label] = net.sequence_filter_all(among, [x, within]);
                softmax.cluster(&net, x, weights, k).cross_entropy(label).sequence_place(among)
            });
            let of_head = softmax.head(&net, x, weights).cross_entropy(head);
            clusters.fold(of_head, |loss, of_cluster| loss + of_cluster)
        })
    }
}
