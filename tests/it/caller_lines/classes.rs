//! Norms, losses, and the operators of every day: each called wrongly.

use unpadded::layers::{Crf, Highway, Norm};
use unpadded::ops::{BinaryCrossEntropy, ClassTree, FocalLoss, SampledClasses};
use unpadded::{Builder, DType};

use super::Calls;

pub(super) fn calls(calls: &mut Calls) {
    let (net, other) = (Builder::new(), Builder::new());
    let x = net.feed("x", DType::F32, &[3], 1);
    let ids = net.feed("ids", DType::I64, &[], 1);
    let mut foreign = other.feed("foreign", DType::F32, &[3], 1);
    for _ in 0..9 {
        foreign = other.tanh(foreign);
    }
    calls.at("Builder::layer_norm", || net.layer_norm(x, Some(x), None, 1e-5));
    calls.at("Builder::layer_norm", || net.layer_norm(x, None, None, 0.0));
    calls.at("Builder::rms_norm", || net.rms_norm(x, None, -1.0));
    calls.at("Builder::norm", || net.norm(ids, Norm::layer()));
    calls.at("Builder::norm", || net.norm(x, Norm::rms().momentum(0.5)));
    calls.at("Builder::norm", || net.norm(x, Norm::batch().epsilon(0.0)));
    calls.at("Builder::highway", || net.highway(ids, Highway::new()));
    calls.at("Builder::glu", || net.glu(x));
    calls.at("Builder::swiglu", || net.swiglu(x));
    calls.at("Builder::bilinear", || net.bilinear(x, x, x));
    calls.at("Builder::weight_norm", || net.weight_norm(foreign, x));

    calls.at("Builder::squared_error", || net.squared_error(x, ids));
    calls.at("Builder::huber", || net.huber(x, x, 0.0));
    calls.at("Builder::kl_divergence", || net.kl_divergence(x, foreign));
    calls.at("Builder::hinge", || net.hinge(x, ids));
    calls.at("Builder::binary_cross_entropy", || net.binary_cross_entropy(x, ids));
    calls.at("Builder::binary_cross_entropy_with", || {
        net.binary_cross_entropy_with(x, x, BinaryCrossEntropy::default().weights(x))
    });
    calls.at("Builder::focal_loss", || net.focal_loss(x, ids));
    calls.at("Builder::focal_loss_with", || net.focal_loss_with(x, x, FocalLoss::default().gamma(-1.0)));
    calls.at("Builder::cosine_similarity", || net.cosine_similarity(x, ids));
    calls.at("Builder::cosine_loss", || net.cosine_loss(x, foreign, x, 0.0));
    calls.at("Builder::margin_ranking", || net.margin_ranking(x, x, foreign, 0.5));
    let options = SampledClasses::new(0);
    calls.at("Builder::nce", || net.nce(x, x, ids, options).0);
    calls.at("Builder::nce_loss", || net.nce_loss(x, x, ids, 5));
    calls.at("Builder::sampled_softmax", || net.sampled_softmax(x, x, ids, options).0);
    calls.at("Builder::sampled_softmax_loss", || net.sampled_softmax_loss(x, x, ids, 5));
    calls.at("Builder::hierarchical_sigmoid", || {
        net.hierarchical_sigmoid(x, x, None, ids, ClassTree::Complete(4))
    });

    let crf = net.layer(Crf::new().forbidding(&ndarray::Array2::zeros((2, 2))));
    calls.at("Builder::linear_chain_crf", || net.linear_chain_crf(x, x, ids, &[]));
    calls.at("Builder::crf_marginals", || net.crf_marginals(x, x, &[]));
    calls.at("Builder::viterbi_decode", || net.viterbi_decode(ids, x, 1, &[]).0);
    calls.at("Instance::loss", || crf.loss(x, ids));
    let crf = net.layer(Crf::new().forbidding(&ndarray::Array2::zeros((2, 2))));
    calls.at("Instance::n_best", || crf.n_best(x, 2).0);
    let crf = net.layer(Crf::new().forbidding(&ndarray::Array2::zeros((2, 2))));
    calls.at("Instance::marginals", || crf.marginals(x));
    calls.at("Builder::ctc_loss", || net.ctc_loss(x, ids, 3, false));
    calls.at("Builder::ctc_align", || net.ctc_align(x, 0));
    calls.at("Builder::ctc_greedy", || net.ctc_greedy(ids, 0));
    calls.at("Builder::edit_distance", || net.edit_distance(ids, x, false));

    calls.at("Builder::top_k", || net.top_k(x, 4).0);
    calls.at("Builder::argmax", || net.argmax(ids));
    calls.at("Builder::cumulative_sum", || net.cumulative_sum(ids));
    calls.at("Builder::cumulative_sum_features", || net.cumulative_sum_features(ids));
    calls.at("Builder::select", || net.select(ids, x, x));
    calls.at("Builder::gather_rows", || net.gather_rows(x, x));
    calls.at("Builder::scatter_rows", || net.scatter_rows(x, x, 4));
    calls.at("Builder::one_hot", || net.one_hot(ids, 0));
}
