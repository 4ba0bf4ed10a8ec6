//! Operators that copy a variable: unchanged, into another dtype, or only the shape.

pub(super) mod assign;
pub(super) mod carry;
pub(super) mod fill_like;
pub(super) mod round_bf16;

operators! {
    assign::Assign,
    assign::Cast,
    carry::Carry,
    fill_like::FillLike,
    round_bf16::RoundBf16,
}
