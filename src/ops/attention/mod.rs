//! Attention between sequences, and position embeddings.

pub(super) mod additive;
pub(super) mod dot;
mod parts;
pub(super) mod rotary;

operators! {
    additive::AdditiveAttention,
    dot::DotAttentionOp,
    rotary::Rotary,
}
