//! Metrics in files: what is said of one, and how it is made again.

use super::classes::{ACCURACY, AVERAGE, CLASS, CLASSES, FSCORE, IGNORE, MACRO, MICRO};
use super::{Accuracy, Average, F1, Loss, Metric, Shown};
use crate::checkpoint::MetricDesc;
use crate::error::{Error, ErrorKind, Result};
use crate::program::{Program, Var};

/// What a file says of a metric whose variables are the program's; `None` of one that cannot be made again.
pub(crate) fn describe(metric: &dyn Metric, program: &Program) -> Option<MetricDesc> {
    let kind = metric.kind()?;
    let variables = metric.variables().into_iter().map(|var| program.var(var.id()).name.clone());
    Some(MetricDesc {
        name: metric.name().to_owned(),
        kind: kind.name.to_owned(),
        variables: variables.collect(),
        attributes: kind.attributes,
    })
}

/// The metric that a file says.
///
/// # Errors
/// If there is no such kind, as in a file of a later release, or its variables or attributes do not fit it.
pub(crate) fn metric_of(desc: &MetricDesc, program: &Program) -> Result<Box<dyn Metric>> {
    made(desc, program).map_err(|e| e.noted(format!("in metric `{}` of the checkpoint", desc.name)))
}

fn made(desc: &MetricDesc, program: &Program) -> Result<Box<dyn Metric>> {
    let MetricDesc { name, kind, variables, attributes } = desc;
    let wrong = |expected: &str, got: String| Error::of(ErrorKind::Program, "metric", expected, got);
    let var = |name: &String| match program.find(name) {
        Some(id) => Ok(Var::of_program(id)),
        None => Err(wrong("a variable of the program", format!("`{name}`"))),
    };
    let vars: Vec<Var> = variables.iter().map(var).collect::<Result<_>>()?;
    let loss = |of: Var| match Shown::ALL.into_iter().find(|(_, name)| name == kind)?.0 {
        Shown::Mean => Some(Loss::new(of)),
        Shown::Perplexity => Some(Loss::perplexity(of)),
        Shown::BitsPerCharacter => Some(Loss::bits_per_character(of)),
    };
    if let Some(loss) = vars.first().and_then(|&of| loss(of)) {
        return match vars[1..] {
            [] => Ok(Box::new(loss.named(name))),
            [share] => Ok(Box::new(loss.weighted(share).named(name))),
            _ => {
                Err(wrong("losses, and their shares if they have some", format!("{} variables", vars.len())))
            }
        };
    }
    let ignored = || attributes.get(IGNORE).map(|_| attributes.int(IGNORE)).transpose();
    Ok(match (kind.as_str(), &*vars) {
        (ACCURACY, &[logits, labels]) => {
            let metric = Accuracy::new(logits, labels).named(name);
            match ignored()? {
                Some(label) => Box::new(metric.ignoring(label)),
                None => Box::new(metric),
            }
        }
        (FSCORE, &[logits, labels]) => {
            let (classes, width) = (attributes.size(CLASSES)?, program.spec(logits.id())?.width());
            if classes != width {
                return Err(wrong(&format!("as many classes as columns, {width}"), classes.to_string()));
            }
            let average = match attributes.get(CLASS) {
                Some(_) => Average::Class(attributes.size(CLASS)?),
                None => match attributes.text(AVERAGE)? {
                    MACRO => Average::Macro,
                    MICRO => Average::Micro,
                    other => return Err(wrong("an average of macro or micro", format!("`{other}`"))),
                },
            };
            let metric = F1::new(logits, labels, classes, average).named(name);
            match ignored()? {
                Some(label) => Box::new(metric.ignoring(label)),
                None => Box::new(metric),
            }
        }
        (kind, vars) => {
            let expected = "a kind that this release knows, and its variables";
            return Err(wrong(expected, format!("`{kind}` of {}", vars.len())));
        }
    })
}
