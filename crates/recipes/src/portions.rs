//! The portions of a data set (training, held-out and test records): the records and the classes that they share or lack.

use std::collections::{BTreeMap, HashMap, HashSet};

use unpadded::data::{Fingerprint, Vocabulary};
use unpadded::{Error, ErrorKind, Result};
use unpadded_text::{DataSet, Fold, Record};

use super::config::Config;
use super::evaluation::{OTHERS, UnseenLabel, count_of, first_places, named};

/// The portion of the data that a record is in: the training texts, the texts held out from them, or the texts of `data.dev`.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Portion {
    Train,
    HeldOut,
    Dev,
}

/// What a class is called in messages: a label of a text, or a tag of a word.
pub(super) const LABEL: &str = "label";
pub(super) const TAG: &str = "tag";

/// A function that gets each class of a record: what it is (`label` or `tag`), its name, and a function that returns its location.
pub(super) type EachClass<'a> = &'a mut dyn FnMut(&'static str, &str, &dyn Fn() -> Option<String>);

pub(super) trait RecordAnswers {
    type Record: Record;
    /// Whether an input may have several right answers, such as the translations of a source.
    const MANY_ANSWERS: bool = false;

    /// Passes each class of a record to a callback; a translation or a number has no class.
    fn classes(_: &Config, _: &Self::Record, _each: EachClass<'_>) {}

    /// Returns a hash of the right answer. Records with equal inputs contradict each other if their hashes differ.
    fn answer(_: &Config, record: &Self::Record) -> u64 {
        record.fingerprint(Fingerprint::default()).finish()
    }
}

/// Returns the location of a record in its file; `None` if the line is unknown.
pub(super) fn location(record: &impl Record) -> Option<String> {
    record.file_line().map(|location| location.to_string())
}

const NAMED: usize = 10;

/// How often a class, a label or a tag, occurs in the training data.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ClassCount {
    /// The number of occurrences in the training texts; 0 for a class that the model cannot learn.
    pub train: u64,
    /// The name of the class, and its occurrences in the held-out texts or in `data.dev`.
    pub held_out: UnseenLabel,
}

/// The classes of all portions, by their names: first the labels, then the tags.
#[derive(Default)]
pub(super) struct ClassCounts([BTreeMap<String, ClassCount>; 2]);

impl ClassCounts {
    /// Counts the classes of a record, and returns whether it has none. Locations are kept while no training text has the class.
    fn add<M: RecordAnswers>(&mut self, config: &Config, record: &M::Record, portion: Portion) -> bool {
        let mut bare = true;
        M::classes(config, record, &mut |what, name, location| {
            bare = false;
            let classes = &mut self.0[usize::from(what == TAG)];
            if !classes.contains_key(name) {
                classes
                    .insert(name.to_owned(), ClassCount { train: 0, held_out: UnseenLabel::new(what, name) });
            }
            match classes.get_mut(name) {
                Some(class) if portion == Portion::Train => class.train += 1,
                Some(class) if class.train > 0 => class.held_out.count += 1,
                Some(class) => class.held_out.add(location),
                None => {}
            }
        });
        bare
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &ClassCount> {
        self.0.iter().flat_map(BTreeMap::values)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.all().map(|class| class.held_out.name.as_str())
    }

    fn of(&self, what: &str) -> &BTreeMap<String, ClassCount> {
        &self.0[usize::from(what == TAG)]
    }

    pub(super) fn without_labels(&mut self) {
        self.0[0].clear();
    }

    /// Returns the classes of a kind, sorted by name; a class that no training text has gets the count 0.
    pub(super) fn vocabulary(&self, what: &str) -> Result<Vocabulary> {
        let entries = self.of(what).iter().map(|(name, class)| (name.as_str(), class.train));
        let twice = |name| Error::new(format!("{what}s"), "each once", format!("`{name}` twice"));
        Vocabulary::counted(entries).map_err(twice)
    }

    pub(super) fn is_unseen<M: RecordAnswers>(&self, config: &Config, record: &M::Record) -> bool {
        let mut found = false;
        M::classes(config, record, &mut |what, name, _| {
            found |= self.of(what).get(name).is_none_or(|class| class.train == 0)
        });
        found
    }

    /// Checks that held-out classes fit a training with the classes `known`. `bare`: a record has no class, a right answer, too.
    fn check(&self, known: &Self, name: &str, bare: bool) -> Result<()> {
        for what in [LABEL, TAG] {
            let own = || self.of(what).values().filter(|class| class.held_out.count > 0);
            if !bare && own().all(|class| class.train == 0) {
                let trained = known.of(what).iter().filter(|(_, class)| class.train > 0);
                fitting((what, name), trained.map(|(name, _)| &**name), own().map(|class| &class.held_out))?;
            }
        }
        Ok(())
    }

    pub(super) fn unseen(&self) -> impl Iterator<Item = &UnseenLabel> {
        self.all().filter(|class| class.train == 0).map(|class| &class.held_out)
    }

    fn warnings(&self, name: &str) -> Vec<String> {
        let mut unseen: Vec<UnseenLabel> = self.unseen().cloned().collect();
        // Rows of features have no known lines.
        for class in unseen.iter_mut().filter(|class| class.places.is_empty()) {
            class.places.push(format!("`{name}`"));
        }
        UnseenLabel::warnings(&unseen)
    }

    /// Returns warnings about classes whose names differ only in spelling, or look like missing values.
    pub(super) fn doubts(&self) -> Vec<String> {
        let mut message = Vec::new();
        for (what, counts) in [LABEL, TAG].into_iter().zip(&self.0) {
            let mut alike: BTreeMap<String, Vec<String>> = BTreeMap::new();
            let mut missing = Vec::new();
            for (name, class) in counts {
                let shown = format!("{} ({})", named(name), class.train + class.held_out.count);
                if MISSING.contains(&name.as_str()) {
                    missing.push(shown.clone());
                }
                alike.entry(plain(name)).or_default().push(shown);
            }
            let alike = alike.into_values().filter(|names| names.len() > 1);
            let alike: Vec<String> = alike.map(|names| names.join(" and ")).collect();
            let warning = |found: &[String], is: &str| {
                (!found.is_empty()).then(|| format!("warning: {what}s that {is}: {}", listed(found)))
            };
            message.extend(warning(&alike, "differ only in case, in blanks or in the spelling of a number"));
            message.extend(warning(&missing, "look like a missing value that a program wrote"));
        }
        message
    }
}

const MISSING: [&str; 9] = ["NaN", "nan", "NAN", "None", "null", "NULL", "Null", "<NA>", "NaT"];

/// Returns the name of a class without case and blanks; equal numbers have equal results.
fn plain(name: &str) -> String {
    let is_blank =
        |c: char| c.is_whitespace() || ['\u{200b}', '\u{200c}', '\u{200d}', '\u{feff}'].contains(&c);
    let name: String = name.chars().filter(|c| !is_blank(*c)).flat_map(char::to_lowercase).collect();
    let number = name.parse().or_else(|_| name.replacen(',', ".", 1).parse::<f64>());
    // Adding 0.0 changes −0 to 0.
    number.ok().filter(|number| number.is_finite()).map_or(name, |number| (number + 0.0).to_string())
}

/// Returns the first names of a list, and the number of the others.
pub(super) fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown}, and {more} more") }
}

/// The bits of a key that are a hash of the right answer; the other bits are a hash of the input.
const ANSWER: u64 = 0xffff;

/// Returns a hash of the input and, in the last 16 bits, of the right answer; a million texts have a wrong match with below 1 %.
fn key<M: RecordAnswers>(config: &Config, record: &M::Record) -> u64 {
    let answer = if M::MANY_ANSWERS { 0 } else { M::answer(config, record) };
    (record.input(Fingerprint::default()).finish() & !ANSWER) | (answer & ANSWER)
}

/// Returns the number of different inputs that have several right answers; the keys are sorted.
fn contradictions(keys: &[u64]) -> usize {
    let alike = keys.chunk_by(|a, b| a | ANSWER == b | ANSWER);
    alike.filter(|alike| alike.first() != alike.last()).count()
}

#[derive(Default)]
struct SharedRecords {
    all: u64,
    shared: u64,
    /// The number of shared records whose right answer is another one in the other portion.
    contradicting: u64,
    places: Vec<String>,
}

impl SharedRecords {
    /// Counts a record; `known` has the sorted keys of the other portion.
    fn add(&mut self, known: &[u64], key: u64, location: impl FnOnce() -> Option<String>) {
        self.all += 1;
        let begin = known.partition_point(|classes| *classes < key & !ANSWER);
        if known.get(begin).is_none_or(|classes| classes | ANSWER != key | ANSWER) {
            return;
        }
        self.shared += 1;
        self.contradicting += u64::from(known.binary_search(&key).is_err());
        if self.places.len() < 3 {
            self.places.extend(location());
        }
    }

    fn warning(&self, (name, records): (&str, &str), are: &str) -> Option<String> {
        let Self { all, shared, contradicting, places } = self;
        let places = first_places(places, *shared);
        let other = match contradicting {
            0 => String::new(),
            _ => format!(", {contradicting} of them with another right answer there"),
        };
        (*shared > 0).then(|| {
            format!(
                "warning: {shared} of {all} {records} of `{name}` {are}{other}{places}; their scores say nothing about new {records}"
            )
        })
    }
}

/// What later files of a training are compared with: the records and the classes of its first portions.
#[derive(Default)]
pub(super) struct PortionFacts {
    pub(super) classes: ClassCounts,
    seen: [Vec<u64>; 2],
    held_out: String,
    /// The held-out records that the training records have, too.
    shared: SharedRecords,
    bare: bool,
}

impl PortionFacts {
    /// Counts the classes of a record, and keeps its key. The records of `data.dev` follow all training records.
    pub(super) fn add<M: RecordAnswers>(&mut self, config: &Config, record: &M::Record, portion: Portion) {
        let bare = self.classes.add::<M>(config, record, portion);
        let key = key::<M>(config, record);
        if portion == Portion::Dev {
            self.bare |= bare;
            self.shared.add(&self.seen[0], key, || location(record));
        }
        self.seen[usize::from(portion != Portion::Train)].push(key);
    }

    pub(super) fn trained(&mut self) {
        self.seen[0].sort_unstable();
    }

    /// Returns warnings about the training file and the held-out records, which [`fitting`] checks if they are a file.
    pub(super) fn messages<M: RecordAnswers>(
        &mut self,
        train: &str,
        held_out: &str,
        divided: bool,
    ) -> Result<Vec<String>> {
        if !divided {
            self.classes.check(&self.classes, held_out, self.bare)?;
        }
        held_out.clone_into(&mut self.held_out);
        let [of_train, of_held] = &mut self.seen;
        of_held.sort_unstable();
        if divided {
            // Equal records are in one portion, unless groups decide.
            of_held.iter().for_each(|key| self.shared.add(of_train, *key, || None));
        }
        let records = M::Record::PLURAL;
        let mut shares = [(train, contradictions(of_train)), (held_out, contradictions(of_held))];
        if divided {
            shares = [(train, shares[0].1 + shares[1].1), (held_out, 0)];
        }
        let mut message = self.classes.doubts();
        message.extend(shares.iter().filter(|(_, count)| *count > 0).map(|(name, count)| {
            let (occur, other) = if *count == 1 { ("occurs", "") } else { ("occur", "different ") };
            let records = count_of(*count as u64, &format!("{other}{records}"));
            format!("warning: {records} of `{name}` {occur} with different right answers")
        }));
        message.extend(self.shared.warning((held_out, records), &are::<M>("training", None)));
        message.extend(self.classes.warnings(held_out));
        Ok(message)
    }

    pub(super) fn test(&self) -> TestRecords<'_> {
        TestRecords { known: self, classes: ClassCounts::default(), bare: false, shared: Default::default() }
    }
}

fn are<M: RecordAnswers>(kind: &str, name: Option<&str>) -> String {
    let name = name.map_or_else(String::new, |name| format!(" of `{name}`"));
    let records = M::Record::PLURAL;
    match M::MANY_ANSWERS {
        true => format!("have the source of {kind} {records}{name}"),
        false => format!("are {kind} {records}{name}"),
    }
}

/// The records of a test file, compared with the portions of a training.
pub(super) struct TestRecords<'a> {
    known: &'a PortionFacts,
    classes: ClassCounts,
    /// Whether a record has no class; with several labels per text, no label is a right answer.
    bare: bool,
    /// The records that the training portion has, and the records that the held-out portion has.
    shared: [SharedRecords; 2],
}

impl TestRecords<'_> {
    pub(super) fn add<M: RecordAnswers>(&mut self, config: &Config, record: &M::Record) {
        self.bare |= self.classes.add::<M>(config, record, Portion::Dev);
        let key = key::<M>(config, record);
        for (shared, known) in self.shared.iter_mut().zip(&self.known.seen) {
            shared.add(known, key, || location(record));
        }
    }

    /// Returns warnings about the test file, or the error of [`fitting`].
    pub(super) fn end<M: RecordAnswers>(mut self, name: &str) -> Result<Vec<String>> {
        for (own, known) in self.classes.0.iter_mut().zip(&self.known.classes.0) {
            // The model does not learn a kind of class that the training lacks.
            own.retain(|_, _| !known.is_empty());
            for (class, counts) in known {
                if let Some(own) = own.get_mut(class) {
                    own.train = counts.train
                }
            }
        }
        self.classes.check(&self.known.classes, name, self.bare)?;
        let records = M::Record::PLURAL;
        let [of_train, of_held] = &self.shared;
        let held_out = are::<M>("held-out", Some(&self.known.held_out)) + ", which choose the best epoch";
        let message = [
            of_train.warning((name, records), &are::<M>("training", None)),
            of_held.warning((name, records), &held_out),
        ];
        Ok(message.into_iter().flatten().chain(self.classes.warnings(name)).collect())
    }
}

/// Checks a file that has none of the classes of a training, only the classes `unseen`. The file is scored as wrong, unless hardly a
/// class recurs in it: such classes are texts or numbers of records, from another column.
pub(super) fn fitting<'a>(
    (what, name): (&str, &str),
    trained: impl Iterator<Item = &'a str>,
    unseen: impl Iterator<Item = &'a UnseenLabel> + Clone,
) -> Result<()> {
    let classes: u64 = unseen.clone().map(|class| if class.name == OTHERS { class.count } else { 1 }).sum();
    let records: u64 = unseen.clone().map(|class| class.count).sum();
    if classes < 2 || 10 * classes <= 9 * records {
        return Ok(());
    }
    let expected = format!("{what}s of the training, {}", listed(&trained.map(named).collect::<Vec<_>>()));
    let got = listed(&unseen.map(|class| named(&class.name)).collect::<Vec<_>>());
    let error = Error::of(ErrorKind::Format, format!("{what}s of `{name}`"), expected, got);
    Err(error.noted(format!("`data.label` sets the column of the {what}s; `data.binary` changes labels")))
}

/// Returns a line about the folds of a cross-validation; an error, if they outnumber the records that can be in different folds.
pub(super) fn check_folds<M: RecordAnswers>(
    records: &DataSet<M::Record>,
    fold: Fold,
    config: &Config,
) -> Result<Option<String>> {
    let (mut keys, seed, folds) = (HashSet::new(), config.run.seed, fold.folds() as usize);
    let mut of_classes: HashMap<(&str, String), HashSet<u64>> = HashMap::new();
    for record in records.records() {
        let key = record.held_out_key(seed);
        keys.insert(key);
        M::classes(config, record, &mut |what, name, _| {
            let known = of_classes.entry((what, name.to_owned())).or_default();
            if known.len() < folds {
                known.insert(key);
            }
        });
    }
    let (all, plural) = (records.records().len(), M::Record::PLURAL);
    if keys.len() < folds {
        let different = match (&config.data.group, keys.len()) {
            (Some(group), groups) => format!(" in {groups} groups of `{group}`"),
            (None, different) if different < all => format!(", {different} of them different"),
            (None, _) => String::new(),
        };
        let (most, all) = (count_of(keys.len() as u64, "folds"), count_of(all as u64, plural));
        let expected = format!("at most {most}, since `{}` has {all}{different}", records.name());
        return Err(Error::new("data.fold", expected, format!("{folds} folds")));
    }
    let few = of_classes.into_iter().filter(|(_, keys)| keys.len() < folds);
    let mut few: Vec<_> =
        few.map(|((what, name), keys)| (keys.len(), format!("{what} {}", named(&name)))).collect();
    few.sort();
    let few: Vec<String> =
        few.into_iter().map(|(count, name)| format!("{name} in at most {count}")).collect();
    Ok((!few.is_empty())
        .then(|| format!("warning: too few {plural} for each of the {folds} folds: {}", listed(&few))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scan of all equal keys for each record would take hours.
    #[test]
    fn equal_records_are_looked_up_and_not_scanned() {
        let known = vec![ANSWER + 1; 1 << 20];
        let mut shared = SharedRecords::default();
        for key in [ANSWER + 1, ANSWER + 2, 1, 3 * (ANSWER + 1)].into_iter().cycle().take(1 << 20) {
            shared.add(&known, key, || None);
        }
        assert_eq!((shared.all, shared.shared, shared.contradicting), (1 << 20, 1 << 19, 1 << 18));
    }
}
