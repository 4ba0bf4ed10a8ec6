//! Losses, and metrics such as accuracy.

pub(super) mod accuracy;
pub(super) mod binary;
pub(super) mod class_table;
pub(super) mod clusters;
pub(super) mod cross_entropy;
pub(super) mod hierarchical;
pub(super) mod linear_cross_entropy;
pub(super) mod pointwise;
pub(super) mod regression;
pub(super) mod sampled;
pub(super) mod similarity;

operators! {
    accuracy::Accuracy,
    clusters::ClassClusters,
    cross_entropy::SoftmaxCrossEntropy,
    hierarchical::HierarchicalSigmoid,
    linear_cross_entropy::LinearCrossEntropy,
    linear_cross_entropy::share::Share,
    pointwise::RowLoss<binary::Focal>,
    pointwise::RowLoss<binary::Hinge>,
    pointwise::RowLoss<binary::LogisticLoss>,
    pointwise::RowLoss<regression::Huber>,
    pointwise::RowLoss<regression::KlDivergence>,
    pointwise::RowLoss<regression::SquaredError>,
    sampled::ContrastOp<sampled::Nce>,
    sampled::ContrastOp<sampled::SampledSoftmax>,
    similarity::CosineSimilarity,
}
