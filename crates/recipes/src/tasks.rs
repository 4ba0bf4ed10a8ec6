//! The recipe of each task. To add a task, write its recipe in a new file, and add a line to `Task::recipe`.

use super::recipe::{Recipe, RecordRecipe};
use super::sections::Task;
use super::{classify, lm, tag, translate};

impl Task {
    /// Returns the recipe of the task.
    pub(super) fn recipe(self) -> &'static dyn Recipe {
        match self {
            Self::Classify => &classify::Classify,
            Self::Tag => &RecordRecipe::<tag::Tagger>::NEW,
            Self::Lm => &lm::Lm,
            Self::Translate => &RecordRecipe::<translate::Translator>::NEW,
        }
    }

    /// Returns whether a model of the task continues texts (`generate`), instead of answering records (`predict`).
    pub fn continues_texts(self) -> bool {
        self.recipe().continues_texts()
    }
}
