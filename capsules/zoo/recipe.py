"""Which capsules ship, and the options they are all trained with."""

from dataclasses import dataclass

from capsules.training.config import TrainingConfig

EPOCHS = 10
PATIENCE = 3


@dataclass(frozen=True, slots=True)
class Recipe:
    """One shipped capsule.

    Attributes:
        task: its name, and its data folder's.
        description: for people.
        seeds: one run each; the first one's capsule ships.
    """

    task: str
    description: str
    seeds: tuple[int, ...] = (0,)

    def config(self, seed: int, *, capsule: bool) -> TrainingConfig:
        """The options of one run, of the capsule or of the linear head beside it."""
        return TrainingConfig(
            task=self.task,
            description=self.description,
            variant="addition" if capsule else None,
            epochs=EPOCHS,
            patience=PATIENCE,
            seed=seed,
        )


RECIPES = (
    Recipe("trec", "The kind of answer that a question asks for, 6 kinds.", seeds=(0, 1, 2)),
    Recipe("sms_spam", "Spam among English text messages.", seeds=(0, 1, 2)),
    Recipe("banking77", "The intent of a bank customer's question, 77 intents."),
    Recipe("snips", "The intent of a command to a voice assistant, 7 intents."),
    Recipe("clinc150", "The intent of a request to an assistant, 150 intents and out of scope."),
    Recipe("sst2", "The sentiment of a sentence from a film review."),
)
