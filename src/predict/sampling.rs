//! Drawing what comes next from what a model says of it.

use crate::error::{Error, Result};
use crate::kernels::philox;

/// How to draw one of many from their logits, one for each.
///
/// ```
/// use unpadded::predict::Sampling;
/// let logits = [1.0f32, 3.0, 2.0];
/// let likeliest = Sampling { temperature: 0.0, ..Sampling::default() };
/// assert_eq!(likeliest.sampler(1)?.draw(&logits)?, 1);
/// let mut one_of_two = Sampling { top_k: Some(2), ..Sampling::default() }.sampler(1)?;
/// let drawn = (0..100).map(|_| one_of_two.draw(&logits)).collect::<unpadded::Result<Vec<_>>>()?;
/// assert!(drawn.contains(&1) && drawn.contains(&2) && !drawn.contains(&0));
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// What the logits are divided by: below 1 likely ones become likelier, at 0 it is always the likeliest.
    pub temperature: f64,
    /// Only so many, the likeliest, can be drawn; `None` for all.
    pub top_k: Option<usize>,
    /// Only the likeliest that together have this probability can be drawn; 1 for all.
    pub top_p: f64,
}

impl Default for Sampling {
    /// From the model's own distribution.
    fn default() -> Self {
        Self { temperature: 1.0, top_k: None, top_p: 1.0 }
    }
}

impl Sampling {
    /// Starts to draw; what is drawn depends on the seed and the logits alone.
    ///
    /// # Errors
    /// If the temperature is below zero or not finite, `top_k` is zero, or `top_p` not above 0 and at most 1.
    #[track_caller]
    pub fn sampler(self, seed: u64) -> Result<Sampler> {
        let Self { temperature, top_k, top_p } = self;
        if !(temperature >= 0.0 && temperature.is_finite()) {
            return Err(Error::new("temperature", "a finite number from 0 on", temperature.to_string()));
        }
        if top_k == Some(0) {
            return Err(Error::new("top_k", "at least 1", "0"));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(Error::new("top_p", "a number above 0 and at most 1", top_p.to_string()));
        }
        Ok(Sampler { sampling: self, seed, drawn: 0 })
    }
}

/// Draws as a [`Sampling`] says, one after another.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampler {
    sampling: Sampling,
    seed: u64,
    drawn: u64,
}

impl Sampler {
    /// The place of the one that is drawn. Of equal logits the first counts as the likelier.
    ///
    /// # Errors
    /// If there is no logit above negative infinity, or one is NaN or positive infinity.
    #[track_caller]
    pub fn draw(&mut self, logits: &[f32]) -> Result<i64> {
        let Sampling { temperature, top_k, top_p } = self.sampling;
        if let Some(wrong) = logits.iter().find(|x| x.is_nan() || **x == f32::INFINITY) {
            return Err(Error::new("logits to draw from", "finite ones", wrong.to_string()));
        }
        let possible = (0i64..).zip(logits).filter(|(_, logit)| **logit > f32::NEG_INFINITY);
        let mut likeliest: Vec<(i64, f64)> = possible.map(|(i, &x)| (i, f64::from(x))).collect();
        likeliest.sort_by(|a, b| b.1.total_cmp(&a.1));
        let Some(&(first, highest)) = likeliest.first() else {
            return Err(Error::new("logits to draw from", "at least one above negative infinity", "none"));
        };
        if temperature == 0.0 {
            return Ok(first);
        }
        likeliest.truncate(top_k.unwrap_or(usize::MAX));
        let mut upto = 0.0; // the weight of one and of all likelier ones
        for (_, number) in &mut likeliest {
            upto += ((*number - highest) / temperature).exp();
            *number = upto;
        }
        let enough = likeliest.iter().position(|&(_, weight)| weight >= top_p * upto);
        likeliest.truncate(enough.map_or(likeliest.len(), |i| i + 1));

        let counter = [self.drawn as u32, (self.drawn >> 32) as u32, 0, 0];
        let [high, low, ..] = philox(counter, [self.seed as u32, (self.seed >> 32) as u32]);
        self.drawn += 1;
        let share = (u64::from(high) << 32 | u64::from(low)) as f64 / 2f64.powi(64);
        let (last, weight) = likeliest.last().copied().unwrap_or((first, 1.0));
        Ok(likeliest.iter().find(|(_, upto)| *upto > share * weight).map_or(last, |&(i, _)| i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each of four is drawn, of 4000.
    fn counts(sampling: Sampling, logits: &[f32; 4]) -> [i32; 4] {
        let (mut sampler, mut counts) = (sampling.sampler(7).unwrap(), [0; 4]);
        (0..4000).for_each(|_| counts[sampler.draw(logits).unwrap() as usize] += 1);
        counts
    }

    fn close(counts: [i32; 4], shares: [f64; 4]) {
        let far = counts.iter().zip(shares).any(|(&n, share)| (f64::from(n) / 4000.0 - share).abs() > 0.03);
        assert!(!far, "{counts:?} for {shares:?}");
    }

    #[test]
    fn as_often_as_said() {
        let logits = [0.1f32, 0.2, 0.3, 0.4].map(f32::ln);
        let all = Sampling::default();
        close(counts(all, &logits), [0.1, 0.2, 0.3, 0.4]);
        close(counts(Sampling { temperature: 0.5, ..all }, &logits), [1.0, 4.0, 9.0, 16.0].map(|w| w / 30.0));
        let two = counts(Sampling { top_k: Some(2), ..all }, &logits);
        close(two, [0.0, 0.0, 3.0 / 7.0, 4.0 / 7.0]);
        assert_eq!(two[..2], [0, 0]);
        let most = counts(Sampling { top_p: 0.75, ..all }, &logits); // 0.4 + 0.3 is not enough
        close(most, [0.0, 2.0 / 9.0, 3.0 / 9.0, 4.0 / 9.0]);
        assert_eq!(most[0], 0);
        assert_eq!(counts(Sampling { top_p: 1e-9, ..all }, &logits), [0, 0, 0, 4000]);
        assert_eq!(counts(Sampling { temperature: 1e-300, ..all }, &logits), [0, 0, 0, 4000]);
        assert_eq!(counts(all, &[f32::NEG_INFINITY, f32::MAX, f32::NEG_INFINITY, f32::MIN]), [0, 4000, 0, 0]);
    }

    #[test]
    fn the_same_by_the_same_seed() {
        let draws = |seed| {
            let mut sampler = Sampling::default().sampler(seed).unwrap();
            (0..50).map(|_| sampler.draw(&[0.0; 9]).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
        assert_ne!(draws(1), draws(1 << 32 | 1));
    }

    #[test]
    fn what_does_not_make_sense() {
        let wrong = |sampling: Sampling| sampling.sampler(1).unwrap_err().to_string();
        let all = Sampling::default();
        assert!(
            wrong(Sampling { temperature: -1.0, ..all })
                .contains("temperature: expected a finite number from 0 on")
        );
        assert!(wrong(Sampling { temperature: f64::NAN, ..all }).contains("got NaN"));
        assert!(wrong(Sampling { top_k: Some(0), ..all }).contains("top_k: expected at least 1"));
        assert!(wrong(Sampling { top_p: 0.0, ..all }).contains("above 0"));
        let mut sampler = all.sampler(1).unwrap();
        assert!(sampler.draw(&[]).is_err() && sampler.draw(&[f32::NEG_INFINITY]).is_err());
        assert!(sampler.draw(&[1.0, f32::NAN]).unwrap_err().to_string().contains("got NaN"));
        assert!(sampler.draw(&[f32::INFINITY]).is_err());
    }
}
