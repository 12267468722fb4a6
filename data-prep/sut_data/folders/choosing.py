"""Which training suits a training text: model, batches, schedule and checkpoints by its size.

The whole rule (`choose`):

    size    training pairs   model                    an update  passes  updates
    tiny    up to 5,000      sut_tiny, dropout 0.3        1,024      60  600 to 5,000
    small   up to 100,000    sut_tiny with 8 experts      2,048      11  1,000 to 30,000
    medium  up to 1,000,000  states of 256, 6 steps       8,192      40  10,000 to 60,000
    large   more             sut_base                32 x 8,192     100  20,000 to 100,000

- The size of an update is in symbols on the longer side, over all GPUs together.
- A pass goes once through the training text. The number of updates is that of these passes, rounded
  up to two digits, within the bounds.
- Without a GPU, small is the largest size.
- The model is validated and saved `validations` times. The last checkpoint and the 5 best stay.
- tiny and small let the learning rate decay to zero, without which few updates do not get far;
  medium and large divide it by the square root of the number of updates.

small is size small of the experiment `multi30k`, large the recipe of Tan et al. (2023) for WMT'14;
medium lies between them. The experiment `parallel_text` has the same sizes; a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

KEPT = 5  # best checkpoints, to be averaged
_NEVER = 100_000  # epochs: fairseq would validate and save after each one, however short

Options = dict[str, str | bool]  # of fairseq-train, without dashes; True for a flag


@dataclass(frozen=True)
class Size:
    """A row of the rule.

    Attributes:
        name: of the size, in the experiment `parallel_text` too.
        pairs: the most training pairs that it suits; None means any number.
        model: architecture and options of the model.
        tokens: per batch, on the longer side.
        batches: per update; the GPUs share their tokens.
        passes: through the training text.
        updates: the fewest and the most.
        validations: how often the model is validated and saved.
        schedule: options of the learning rate.
        decays: whether it decays to zero with the last update.
    """

    name: str
    pairs: int | None
    model: Options
    tokens: int
    passes: int
    updates: tuple[int, int]
    validations: int
    schedule: Options
    batches: int = 1
    decays: bool = False

    def share(self, gpus: int) -> tuple[int, int]:
        """Return the tokens per batch on one GPU, and the batches that it accumulates."""
        gpus = max(1, gpus)
        accumulated = -(-self.batches // gpus)
        return -(-self.tokens * self.batches // (gpus * accumulated)), accumulated


SIZES: tuple[Size, ...] = (
    Size(
        "tiny", 5_000,
        {"arch": "sut_tiny", "dropout": "0.3"},
        1_024, 60, (600, 5_000), 10,
        {"lr": "5e-3", "lr-scheduler": "polynomial_decay", "warmup-updates": "100"}, decays=True,
    ),
    Size(
        "small", 100_000,
        {"arch": "sut_tiny", "attention-experts": "8", "ffn-experts": "8", "dropout": "0.1"},
        2_048, 11, (1_000, 30_000), 10,
        {"lr": "5e-3", "lr-scheduler": "polynomial_decay", "warmup-updates": "100"}, decays=True,
    ),
    Size(
        "medium", 1_000_000,
        {
            "arch": "sut_tiny", "encoder-embed-dim": "256", "encoder-ffn-embed-dim": "256",
            "attention-head-dim": "32", "encoder-layers": "6", "decoder-layers": "6",
            "dropout": "0.3", "attention-dropout": "0.1",
        },
        8_192, 40, (10_000, 60_000), 20,
        {"lr": "1e-3", "lr-scheduler": "inverse_sqrt", "warmup-updates": "2000"},
    ),
    Size(
        "large", None, {"arch": "sut_base"},
        8_192, 100, (20_000, 100_000), 50,
        {"lr": "7e-4", "lr-scheduler": "inverse_sqrt", "warmup-updates": "4000"}, batches=32,
    ),
)  # fmt: skip
LARGEST_WITHOUT_GPU = "small"


@dataclass(frozen=True)
class Plan:
    """A training that suits a folder.

    Attributes:
        size: row of the rule.
        tokens: per batch on one GPU.
        gpus: number of GPUs used together; 0 means the CPU.
        text: symbols of the training text, on its longer side.
        updates: number of updates.
    """

    size: Size
    tokens: int
    gpus: int
    text: int
    updates: int = 0

    @property
    def batches(self) -> int:
        """Batches that a GPU accumulates per update."""
        return self.size.share(self.gpus)[1]

    @property
    def symbols(self) -> int:
        """Symbols per update, on the longer side."""
        return self.tokens * self.batches * max(1, self.gpus)

    @property
    def passes(self) -> float:
        """How often the updates go through the training text."""
        return self.updates * self.symbols / self.text

    @property
    def interval(self) -> int:
        """Updates between two validations."""
        return max(1, self.updates // self.size.validations)

    def options(self) -> Options:
        """Options of fairseq-train, except those of the folder itself."""
        size, updates = self.size, str(self.updates)
        decay = {"total-num-update": updates} if size.decays else {}
        return {
            **size.model,
            "criterion": "cross_entropy_with_auxiliary",
            "label-smoothing": "0.1",
            "mutual-information-weight": "0.001",
            "expected-depth-weight": "0.0001",
            "optimizer": "adam",
            "adam-betas": "(0.9, 0.98)",
            "adam-eps": "1e-9",
            "clip-norm": "1.0",
            **size.schedule,
            **decay,
            "max-update": updates,
            "max-tokens": str(self.tokens),
            **({"update-freq": str(self.batches)} if self.batches > 1 else {}),
            "required-batch-size-multiple": "1",
            "validate-interval": str(_NEVER),
            "validate-interval-updates": str(self.interval),
            "save-interval": str(_NEVER),
            "save-interval-updates": str(self.interval),
            "no-epoch-checkpoints": True,
            "keep-interval-updates": "1",
            "keep-best-checkpoints": str(KEPT),
            "best-checkpoint-metric": "nll_loss",
            **({"cpu": True} if self.gpus == 0 else {}),
        }


def choose(pairs: int, symbols: int, longest: int, gpus: int) -> Plan:
    """Choose the training that suits a training text, by the rule above.

    Args:
        pairs: number of training pairs.
        symbols: on their longer side, with an end symbol for each sentence.
        longest: symbols of the longest sentence of any set, with its end; a batch must hold it.
        gpus: number of GPUs used together; 0 if there is none.
    """
    allowed = SIZES
    if gpus == 0:
        names = [size.name for size in SIZES]
        allowed = SIZES[: names.index(LARGEST_WITHOUT_GPU) + 1]
    fitting = (size for size in allowed if size.pairs is not None and pairs <= size.pairs)
    size = next(fitting, allowed[-1])
    plan = Plan(size, max(size.share(gpus)[0], longest), gpus, symbols)
    fewest, most = size.updates
    updates = rounded_up(size.passes * symbols / plan.symbols)
    return replace(plan, updates=min(max(updates, fewest), most))


def rounded_up(number: float) -> int:
    """Round up to an integer with two significant digits."""
    step = 1
    while number > 99 * step:
        step *= 10
    return -int(-number // step) * step
