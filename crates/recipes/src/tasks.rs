//! The recipe of each task. To add a task, write its recipe in a new file, and add a line to `Task::recipe`.

use unpadded_text::QuestionKind;

use super::recipe::Recipe;
use super::sections::Task;
use super::{classify, lm, tag, translate};

impl Task {
    pub(super) fn recipe(self) -> Recipe {
        match self {
            Self::Classify => classify::RECIPE,
            Self::Tag => Recipe::of::<tag::Tagger>(),
            Self::Lm => lm::RECIPE,
            Self::Translate => Recipe::of::<translate::Translator>(),
        }
    }

    /// Returns what a model of the task reads from a record that it answers; `None` for models that continue texts.
    pub fn asking(self) -> Option<QuestionKind> {
        self.recipe().asking
    }

    /// Returns whether a model of the task continues texts (`generate`), instead of answering records (`predict`).
    pub fn continues_texts(self) -> bool {
        self.asking().is_none()
    }

    /// Returns whether the words of a text are given, and not cut by a tokenizer.
    pub(super) fn has_words(self) -> bool {
        self.asking() == Some(QuestionKind::Words)
    }
}
