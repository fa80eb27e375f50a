"""One forward of a whole model over a step that is laid out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from outrider.runtime.attention import STEP_KEYWORD, AttentionStep
from outrider.runtime.weights import row_counts

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from outrider.runtime.kv import KVPool
    from outrider.runtime.layout import StepLayout


class Forward(Protocol):
    """Runs a step."""

    def __call__(self, layout: StepLayout) -> tuple[np.ndarray, np.ndarray]:
        """Store keys and values of all rows.

        Returns:
            Logits of the wanted rows, float32 [num_wanted, width], and which rows are finite, bool
            [num_rows].
        """


class TorchForward:
    """The model's own code, with our attention and weights."""

    def __init__(self, model: PreTrainedModel, pool: KVPool) -> None:
        self._model = model
        self._pool = pool
        self._device = model.device
        # Changed by `loading` alone, before anything is served.
        self.row_counts = row_counts(model)

    @torch.inference_mode()
    def __call__(self, layout: StepLayout) -> tuple[np.ndarray, np.ndarray]:
        """Run a step; see `Forward`."""
        num_padded = self.row_counts.padded(layout.num_rows)
        padding = (0, num_padded - layout.num_rows)
        tokens = torch.from_numpy(np.pad(layout.tokens, padding)).to(self._device)
        positions = torch.from_numpy(np.pad(layout.positions, padding)).to(self._device)
        step = AttentionStep.build(layout, num_padded, self._pool, self._device)
        arguments = {
            "input_ids": tokens[None],
            "position_ids": positions[None],
            # A mask with four axes is passed through as it is; the attention has its own.
            "attention_mask": torch.zeros(1, 1, 1, 1, device=self._device),
            "use_cache": False,
            STEP_KEYWORD: step,
        }
        if len(layout.wanted):
            # The head's rows follow the same rule as all others.
            num_wanted = len(layout.wanted)
            missing = self.row_counts.padded(num_wanted) - num_wanted
            rows = np.pad(layout.wanted, (0, missing), mode="edge")
            output = self._model(**arguments, logits_to_keep=torch.from_numpy(rows).to(self._device))
            logits = output.logits[0, : len(layout.wanted)].float().cpu().numpy()
        else:
            self._model.base_model(**arguments)
            logits = np.empty((0, 0), dtype=np.float32)
        if step.finite is None:
            raise RuntimeError("the model did not call the attention that was set for it")
        return logits, step.finite.cpu().numpy()
