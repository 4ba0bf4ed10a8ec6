//! `class_clusters`: returns the cluster that contains a class, and the position of the class in the cluster.

use crate::ops::lookup::ids::{Ids, check};
use crate::ops::prelude::*;

operator! {
    /// Finds the cluster that contains each label's class, and the position of the class in the cluster, for an adaptive softmax.
    /// Returns three ids per row: the label's class in the `head` softmax (the classes of cluster 0, then one class per other
    /// cluster), the index of the label's `cluster`, and the label's position `within` this cluster.
    ///
    /// `ends` are the ends of the clusters, ascending; the last end is the number of classes. With \[2, 5, 9\], cluster 0 has the
    /// classes 0 and 1, cluster 1 the classes 2 to 4, cluster 2 the classes 5 to 8. In the `head` softmax, a class of cluster 0
    /// keeps its index, and cluster k ≥ 1 has the index ends_0 + k − 1. The operator computes each row alone: all three outputs
    /// hold one i64 per label, and have the LoD of `labels`; no gradient passes.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let labels = Variable::from_sequences(&[vec![1i64, 4], vec![], vec![5]])?;
    /// let op = ops::catalogue().parse("class_clusters", &Attributes::new().with("ends", vec![2usize, 5, 9]))?;
    /// let out = op.call(&[Operand::batch("labels", labels)])?;
    /// assert_eq!(out[0].as_slice::<i64>()?, [1, 2, 3]);
    /// assert_eq!(out[1].as_slice::<i64>()?, [0, 1, 2]);
    /// assert_eq!(out[2].as_slice::<i64>()?, [1, 2, 0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if the labels are not whole numbers, one per row, or the ends do not ascend from at least 1; at a run, if
    /// a label is not below the last end.
    pub(in crate::ops) struct ClassClusters = class_clusters { ends: Vec<usize> => ascending }
    inputs { LABELS = labels: one.without_gradient() }
    outputs {
        HEAD = head: one.without_gradient(),
        CLUSTER = cluster: one.without_gradient(),
        WITHIN = within: one.without_gradient(),
    }
    impl Builder, Var {
        fn class_clusters(&self, labels: Var, ends: &[usize]) -> (Var, Var, Var);
    }
}

fn ascending(attributes: &Attributes, name: &str) -> Result<Vec<usize>> {
    let ends = attributes.sizes(name)?;
    if ends.is_empty() || ends[0] == 0 || !ends.is_sorted_by(|a, b| a < b) {
        let (what, expected) = (format!("attribute `{name}`"), "class numbers that ascend, from at least 1");
        return Err(Error::of(ErrorKind::Program, what, expected, format!("{ends:?}")));
    }
    Ok(ends)
}

impl Op for ClassClusters {
    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        check(s, Self::LABELS)?;
        let out = s.input(Self::LABELS).with_dtype(DType::I64);
        [Self::HEAD, Self::CLUSTER, Self::WITHIN].into_iter().for_each(|slot| s.set(slot, out.clone()));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let labels = Ids::of(run, Self::LABELS)?;
        let mut head = run.output::<i64>(Self::HEAD)?;
        let (mut cluster, mut within) = (run.output::<i64>(Self::CLUSTER)?, run.output::<i64>(Self::WITHIN)?);
        let classes = self.ends.last().copied().unwrap_or(0);
        for row in 0..labels.len() {
            let Some(class) = labels.class(row, classes, None)? else { continue };
            let places = match self.ends.partition_point(|&end| end <= class) {
                0 => [class, 0, class],
                k => [self.ends[0] + k - 1, k, class - self.ends[k - 1]],
            };
            for (out, index) in [&mut head, &mut cluster, &mut within].into_iter().zip(places) {
                out.row(row)[0] = index as i64;
            }
        }
        Ok(())
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let attributes = |ends: &[usize]| ClassClusters { ends: ends.to_vec() }.attributes();
        let labels = |rows: usize| Array1::from_shape_fn(rows, |i| (i * 5 % 9) as i64);
        let mut samples = CheckCase::of_sequences(&attributes(&[2, 5, 9]), |sample, lod| {
            Ok(sample.batch("labels", Variable::sequences(labels(lod.rows()), lod)?))
        })?;
        samples.extend(CheckCase::of_sequences(&attributes(&[1, 9]), |sample, lod| {
            let labels = labels(lod.rows()).mapv(|label| label as i32);
            Ok(sample.batch("labels", Variable::sequences(labels, lod)?))
        })?);
        Ok(samples)
    }
}
