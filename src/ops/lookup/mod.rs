//! Operators on ids, and operators on the rows that ids name.

pub(super) mod bag;
pub(super) mod embedding;
pub(super) mod gather;
pub(super) mod ids;
pub(super) mod int8;

operators! {
    bag::EmbeddingBag,
    embedding::Embedding,
    gather::GatherRows,
    gather::OneHot,
    gather::ScatterRows,
    int8::Int8Embedding,
}
