//! Update rules compared with their formulas in f64; and the effects of decay, groups and clipping on any rule.

use ndarray::{Array2, arr2};
use unpadded::Variable;
use unpadded::tensor::{Dense, SelectedRows};

use unpadded::optimizer::{Adadelta, Adam, Adamax, Ftrl, Lamb, Lion, NAdam, RmsProp, Sgd};

use crate::parity_optim::{Fields, Rule, every_rule, facts, numbers, rows, rule};

const HEIGHT: usize = 4;
const WIDTH: usize = 3;

fn f64s(shape: (usize, usize), pace: f64) -> Array2<f64> {
    Array2::from_shape_fn(shape, |(i, j)| ((i * shape.1 + j) as f64 * pace).sin())
}

fn values(variable: &Variable) -> Vec<f64> {
    variable.as_slice::<f64>().unwrap().to_vec()
}

#[track_caller]
fn close(got: &[f64], expected: &[f64], bound: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() <= bound * expected.abs().max(1.0), "{what}: {got} for {expected}");
    }
}

/// A formula from the number of the step (from 1), the rate and the gradients to the new parameter and state.
type Formula = fn(f64, f64, &[f64], &mut [Vec<f64>]);

/// Some steps of a rule beside its formula, at rates that change.
#[track_caller]
fn follows(rule: &Rule, formula: Formula) {
    let mut fields = Fields::start(rule, Variable::dense(f64s((HEIGHT, WIDTH), 0.3)));
    let mut expected: Vec<Vec<f64>> = fields.0.iter().map(values).collect();
    for step in 0..8 {
        // One step has gradients of 0.
        let size = if step == 5 { 0.0 } else { 1.0 };
        let grad = f64s((HEIGHT, WIDTH), 0.7 + step as f64) * size;
        let rate = 0.125 / (1 + step / 4) as f64;
        formula((step + 1) as f64, rate, grad.as_slice().unwrap(), &mut expected);
        fields = fields.update(rule, "exact", rate, Variable::dense(grad), facts(step, 1));
        for (k, (got, expected)) in fields.0.iter().zip(&expected).enumerate() {
            let what = format!("{}, step {step}, field {k}", rule.kind);
            close(&values(got), expected, 1e-12, &what);
        }
    }
}

/// A formula of one element after another.
macro_rules! each {
    (|$t:ident, $rate:ident, $g:ident, $p:ident $(, $state:ident)*| $body:block) => {
        |$t, $rate, grads, fields| {
            let [params, rest @ ..] = fields else { unreachable!() };
            let mut rest = rest.iter_mut();
            $(let $state = rest.next().unwrap();)*
            assert!(rest.next().is_none());
            for (i, &$g) in grads.iter().enumerate() {
                let $p = &mut params[i];
                $(let $state = &mut $state[i];)*
                $body
            }
        }
    };
}

#[test]
fn rmsprop_is_its_formula() {
    follows(
        &rule(RmsProp::new(0.1).momentum(0.5)),
        each!(|_t, rate, g, p, s, v| {
            *s = 0.99 * *s + 0.01 * g * g;
            *v = 0.5 * *v + g / (s.sqrt() + 1e-8);
            *p -= rate * *v;
        }),
    );
    follows(
        &rule(RmsProp::new(0.1).centred()),
        each!(|_t, rate, g, p, s, m| {
            *s = 0.99 * *s + 0.01 * g * g;
            *m = 0.99 * *m + 0.01 * g;
            *p -= rate * g / ((*s - *m * *m).sqrt() + 1e-8);
        }),
    );
    follows(
        &rule(RmsProp::new(0.1).centred().momentum(0.5)),
        each!(|_t, rate, g, p, s, m, v| {
            *s = 0.99 * *s + 0.01 * g * g;
            *m = 0.99 * *m + 0.01 * g;
            *v = 0.5 * *v + g / ((*s - *m * *m).sqrt() + 1e-8);
            *p -= rate * *v;
        }),
    );
}

#[test]
fn gradients_that_are_alike_have_no_deviation_and_no_nan() {
    let rule = rule(RmsProp::new(0.1).centred().alpha(0.5));
    let mut fields = Fields::start(&rule, Variable::dense(arr2(&[[1.0f32, 1.0]])));
    for step in 0..200 {
        let grad = Variable::dense(arr2(&[[0.1f32, 0.7]]));
        fields = fields.update(&rule, "exact", 1e-9, grad, facts(step, 1));
    }
    assert!(fields.0[0].as_slice::<f32>().unwrap().iter().all(|p| p.is_finite()));
}

#[test]
fn adadelta_is_its_formula() {
    follows(
        &rule(Adadelta::new(0.1).rho(0.75).epsilon(1e-3)),
        each!(|_t, rate, g, p, s, u| {
            *s = 0.75 * *s + 0.25 * g * g;
            let change = (*u + 1e-3).sqrt() / (*s + 1e-3).sqrt() * g;
            *u = 0.75 * *u + 0.25 * change * change;
            *p -= rate * change;
        }),
    );
}

#[test]
fn what_stands_beside_adam_is_its_formula() {
    follows(
        &rule(Adamax::new(0.1)),
        each!(|t, rate, g, p, m, u| {
            *m = 0.9 * *m + 0.1 * g;
            *u = f64::max(0.999 * *u, g.abs() + 1e-8);
            *p -= rate / (1.0 - 0.9f64.powf(t)) * *m / *u;
        }),
    );
    follows(
        &rule(Adam::new(0.1).amsgrad()),
        each!(|t, rate, g, p, m, s, most| {
            *m = 0.9 * *m + 0.1 * g;
            *s = 0.999 * *s + 0.001 * g * g;
            *most = f64::max(*most, *s);
            *p -= rate / (1.0 - 0.9f64.powf(t)) * *m / ((*most / (1.0 - 0.999f64.powf(t))).sqrt() + 1e-8);
        }),
    );
    follows(
        &rule(NAdam::new(0.1)),
        each!(|t, rate, g, p, m, s| {
            let mu = |t: f64| 0.9 * (1.0 - 0.5 * 0.96f64.powf(t * 4e-3));
            let product: f64 = (1..=t as u64).map(|t| mu(t as f64)).product();
            *m = 0.9 * *m + 0.1 * g;
            *s = 0.999 * *s + 0.001 * g * g;
            let scale = (*s / (1.0 - 0.999f64.powf(t))).sqrt() + 1e-8;
            *p -= rate * (1.0 - mu(t)) / (1.0 - product) * g / scale;
            *p -= rate * mu(t + 1.0) / (1.0 - product * mu(t + 1.0)) * *m / scale;
        }),
    );
}

/// The product of the momenta is not multiplied out from the first step on.
#[test]
fn nadam_is_its_formula_after_many_steps() {
    let rule = rule(NAdam::new(0.1));
    let fields = Fields::start(&rule, Variable::dense(arr2(&[[0.0f64]])));
    let grad = Variable::dense(arr2(&[[1.0f64]]));
    let after = fields.update(&rule, "exact", 0.5, grad, facts(u64::MAX >> 12, 1));
    // By then the bias corrections are negligible and the momentum is beta1.
    let expected = -0.5 * (0.1 + 0.9 * 0.1) / (0.001f64.sqrt() + 1e-8);
    close(&values(&after.0[0]), &[expected], 1e-12, "nadam");
}

#[test]
fn lion_and_ftrl_are_their_formulas() {
    follows(
        &rule(Lion::new(0.1)),
        each!(|_t, rate, g, p, m| {
            let c = 0.9 * *m + 0.1 * g;
            *p -= rate * if c == 0.0 { 0.0 } else { c.signum() };
            *m = 0.99 * *m + 0.01 * g;
        }),
    );
    follows(
        &rule(Ftrl::new(0.1).l1(0.25).l2(0.5)),
        each!(|_t, rate, g, p, n, z, s| {
            if g == 0.0 {
                continue;
            }
            let before = if *n == 0.0 { 1.0 / rate } else { *s };
            *n += g * g;
            *s = (1.0 + n.sqrt()) / rate;
            *z += g - (*s - before) * *p;
            *p = match z.abs() <= 0.25 {
                true => 0.0,
                false => -(*z - z.signum() * 0.25) / (*s + 0.5),
            };
        }),
    );
}

/// At a constant rate σ is (√(n + g²) − √n) / rate, as in the paper; a rate that falls to 0 leaves the parameters.
#[test]
fn ftrl_at_a_lower_rate_keeps_what_it_has_learnt() {
    let rule = rule(Ftrl::new(0.1).l2(0.5));
    let mut fields = Fields::start(&rule, Variable::dense(arr2(&[[0.0f64, 0.0]])));
    for field in &mut fields.0[1..] {
        *field = Variable::dense(arr2(&[[0.0f64, 0.0]]));
    }
    let (mut n, mut z, mut p) = ([0.0f64; 2], [0.0f64; 2], [0.0f64; 2]);
    let step = |fields: Fields, rate: f32, t: u64, g: [f64; 2]| {
        fields.update(&rule, "exact", rate.into(), Variable::dense(arr2(&[g])), facts(t, 1))
    };
    for t in 0..50 {
        let g = [(t as f64).sin() + 0.5, (t as f64 * 0.3).cos() - 0.7];
        fields = step(fields, 0.5, t, g);
        for i in 0..2 {
            z[i] += g[i] - ((n[i] + g[i] * g[i]).sqrt() - n[i].sqrt()) / 0.5 * p[i];
            n[i] += g[i] * g[i];
            p[i] = -z[i] / ((1.0 + n[i].sqrt()) / 0.5 + 0.5);
        }
        close(&values(&fields.0[0]), &p, 1e-12, "at one rate");
    }
    let before = values(&fields.0[0]);
    for t in 50..60 {
        fields = step(fields, 0.5e-6, t, [1.0, -1.0]);
    }
    close(&values(&fields.0[0]), &before, 1e-4, "at hardly any rate");
}

fn lamb() -> Rule {
    rule(Lamb::new(0.1).epsilon(1e-8).weight_decay(0.1))
}

#[test]
fn lamb_is_its_formula() {
    let formula: Formula = |t, rate, grads, fields| {
        let [params, m, s] = fields else { unreachable!() };
        let mut change = Vec::new();
        for (i, &g) in grads.iter().enumerate() {
            m[i] = 0.9 * m[i] + 0.1 * g;
            s[i] = 0.999 * s[i] + 0.001 * g * g;
            let (m, s) = (m[i] / (1.0 - 0.9f64.powf(t)), s[i] / (1.0 - 0.999f64.powf(t)));
            change.push(m / (s.sqrt() + 1e-8) + 0.1 * params[i]);
        }
        let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let ratio = norm(params) / norm(&change);
        params.iter_mut().zip(&change).for_each(|(p, change)| *p -= rate * ratio * change);
    };
    follows(&lamb(), formula);
    // A parameter of zeros has no length to go by: the first step is Adam's.
    let [lamb, adam] = [lamb(), rule(Adam::new(0.1))].map(|rule| {
        let zeros = Fields::start(&rule, Variable::dense(Array2::<f64>::zeros((2, 2))));
        let grad = Variable::dense(f64s((2, 2), 0.9));
        values(&zeros.update(&rule, "exact", 0.5, grad, facts(0, 1)).0[0])
    });
    close(&lamb, &adam, 1e-15, "lamb of zeros");
}

/// The rows that were looked up are the whole parameter of a lazy step.
#[test]
fn lazy_lamb_is_that_of_the_touched_rows() {
    let rule = lamb();
    let table = Fields::start(&rule, Variable::dense(f64s((6, 3), 0.3)));
    let after = table.update(&rule, "lazy", 0.125, rows(6, vec![4, 1, 4], f64s((3, 3), 0.9)), facts(0, 1));
    let pick = |variable: &Variable, row: usize| values(variable)[row * 3..][..3].to_vec();
    let two: Vec<f64> = [1, 4].into_iter().flat_map(|row| pick(&table.0[0], row)).collect();
    let alone = Fields::start(&rule, Variable::dense(Dense::from_vec(&[2, 3], two).unwrap()));
    let merged = SelectedRows::new(2, vec![1, 0, 1], f64s((3, 3), 0.9)).unwrap().densify().unwrap();
    let alone = alone.update(&rule, "exact", 0.125, Variable::dense(merged), facts(0, 1));
    for (k, (all, two)) in after.0.iter().zip(&alone.0).enumerate() {
        let got: Vec<f64> = [1, 4].into_iter().flat_map(|row| pick(all, row)).collect();
        close(&got, &values(two), 1e-14, "touched rows");
        assert_eq!(pick(all, 0), pick(&table.0[k], 0));
    }
}

/// Where a gradient is 0 nothing moves, so the rows of a table equal the rows under the densified gradient, also at other rates.
#[test]
fn ftrl_of_selected_rows_is_exact() {
    let rule = rule(Ftrl::new(0.1).l1(0.01).l2(0.5));
    let start = Fields::start(&rule, Variable::dense(f64s((6, 3), 0.3)));
    let (mut dense, mut sparse) = (start.clone(), start);
    for step in 0..20u64 {
        let ids = vec![step as i64 % 6, (step * step) as i64 % 6, 3];
        let grad = SelectedRows::new(6, ids, f64s((3, 3), 0.9 + step as f64)).unwrap();
        let densified = Variable::dense(grad.densify().unwrap());
        let rate = [0.5, 0.25, 0.0, 1.0][step as usize % 4];
        dense = dense.update(&rule, "exact", rate, densified, facts(step, 1));
        sparse = sparse.update(&rule, "exact", rate, Variable::new(grad, None).unwrap(), facts(step, 1));
        assert_eq!(dense, sparse, "step {step}");
    }
}

/// Rules that take decay from outside, which `lamb` and `ftrl` do not.
fn decaying() -> Vec<Rule> {
    let mut rules = every_rule();
    rules.retain(|rule| !["ftrl", "lamb"].contains(&rule.kind));
    let none = |rule: Rule| rule.with("weight_decay", 0.0).with("l1", 0.0).with("decoupled", false);
    rules.into_iter().map(none).collect()
}

#[test]
fn every_rule_decays_as_it_says() {
    let (rate, weight_decay, l1) = (0.125, 0.5, 0.0625);
    for plain in decaying() {
        let rated = rate / (1.0 + plain.attributes.float("rate_decay").unwrap_or(0.0));
        let params = f64s((HEIGHT, WIDTH), 0.3);
        let grad = f64s((HEIGHT, WIDTH), 0.7);
        let start = |param: &Array2<f64>| Fields::start(&plain, Variable::dense(param.clone()));
        let step = |rule: &Rule, fields: Fields, grad: &Array2<f64>| {
            let after = fields.update(rule, "exact", rate, Variable::dense(grad.clone()), facts(1, 1));
            after.0.iter().flat_map(values).collect::<Vec<f64>>()
        };
        let decays = plain.clone().with("weight_decay", weight_decay).with("l1", l1);
        let sign = |p: f64| if p == 0.0 { 0.0 } else { p.signum() };

        let within = &grad + &params.mapv(|p| weight_decay * p + l1 * sign(p));
        let expected = step(&plain, start(&params), &within);
        close(&step(&decays, start(&params), &grad), &expected, 1e-12, plain.kind);

        let kept = params.mapv(|p| {
            let p = (1.0 - rated * weight_decay) * p;
            sign(p) * (p.abs() - rated * l1).max(0.0)
        });
        let decoupled = decays.with("decoupled", true);
        let expected = step(&plain, start(&kept), &grad);
        close(&step(&decoupled, start(&params), &grad), &expected, 1e-12, plain.kind);
    }
}

#[test]
fn a_factor_multiplies_the_rate() {
    for rule in every_rule() {
        let fields = Fields::start(&rule, Variable::dense(numbers((HEIGHT, WIDTH), 0.3)));
        let step = |rule: &Rule, rate: f64| {
            fields.update(rule, "exact", rate, Variable::dense(numbers((HEIGHT, WIDTH), 0.7)), facts(1, 1))
        };
        let half = rule.clone().with("rate_factor", 0.5);
        assert_eq!(step(&half, 0.25), step(&rule, 0.125), "{}", rule.kind);
        assert_ne!(step(&half, 0.25), step(&rule, 0.25), "{}", rule.kind);
        // A group at rate 0 does not move.
        assert_eq!(step(&rule.clone().with("rate_factor", 0.0), 0.25).0[0], fields.0[0], "{}", rule.kind);
    }
}

#[test]
fn a_held_parameter_moves_after_its_steps_alone() {
    for rule in every_rule() {
        let start = Fields::start(&rule, Variable::dense(numbers((HEIGHT, WIDTH), 0.3)));
        let step = |rule: &Rule, fields: &Fields, at: u64| {
            fields.update(rule, "exact", 0.25, Variable::dense(numbers((HEIGHT, WIDTH), 0.7)), facts(at, 1))
        };
        let held = rule.clone().with("held", 2usize);
        let first = step(&held, &start, 0);
        let second = step(&held, &first, 1);
        assert_eq!(second.0[0], start.0[0], "{}", rule.kind);
        // As at rate 0, at which the moments are still updated.
        let none = rule.clone().with("rate_factor", 0.0);
        assert_eq!(second, step(&none, &step(&none, &start, 0), 1), "{}", rule.kind);
        assert_eq!(step(&held, &second, 2), step(&rule, &second, 2), "{}", rule.kind);
    }
}

/// Attributes with a default may be absent.
#[test]
fn attributes_that_are_new_may_be_missing() {
    let rules = [
        rule(Sgd::new(0.1)),
        rule(Sgd::new(0.1).momentum(0.5)),
        rule(Adam::new(0.1)),
        rule(RmsProp::new(0.1)),
    ];
    for rule in rules {
        for name in ["l1", "rate_factor", "held"] {
            assert!(rule.attributes.get(name).is_none());
        }
        let all = rule.clone().with("l1", 0.0).with("rate_factor", 1.0).with("decoupled", false);
        let all = all.with("held", 0usize);
        let fields = Fields::start(&rule, Variable::dense(numbers((HEIGHT, WIDTH), 0.3)));
        let [a, b] = [rule, all].map(|rule| {
            fields.update(&rule, "exact", 0.25, Variable::dense(numbers((HEIGHT, WIDTH), 0.7)), facts(1, 1))
        });
        assert_eq!(a, b);
    }
}
