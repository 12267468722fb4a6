"""Classification with an encoder-decoder model: the label is the only word of the target."""

from __future__ import annotations

from typing import Any

from fairseq.tasks import register_task
from torch import Tensor, nn

from sut_fairseq import metrics
from sut_fairseq.tasks.labels import LabelTask, LabelTaskConfig


@register_task("classification_as_translation", dataclass=LabelTaskConfig)
class ClassificationAsTranslationTask(LabelTask):
    """Any encoder-decoder model can be trained for it.

    Prediction takes one step of the decoder and the most probable of the labels.
    """

    def scores(self, model: Any, sample: dict[str, Any]) -> Tensor:
        """Log-probability of each label as the first word, `(batch, num_labels)`."""
        source = sample["net_input"]["src_tokens"]
        # fairseq starts targets with the end of the sentence.
        start = source.new_full((source.size(0), 1), self.tgt_dict.eos())
        output = model(**{**sample["net_input"], "prev_output_tokens": start})
        symbols = model.get_normalized_probs(output, log_probs=True)[:, 0]
        return symbols[:, self.labels.to(source.device)]

    def valid_step(
        self, sample: dict[str, Any], model: nn.Module, criterion: nn.Module
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Loss of the criterion, and counts of right predictions."""
        loss, sample_size, log = super().valid_step(sample, model, criterion)
        predicted = self.label_scores([model], sample).argmax(dim=1)
        right = self.labels.to(predicted.device)[predicted] == sample["target"][:, 0]
        log |= metrics.accuracy_sums(right, sample.get("group"), len(self.groups))
        return loss, sample_size, log
