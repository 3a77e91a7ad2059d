"""Adaptive vocabularies: the loss against torch's adaptive softmax, probabilities, inputs, a language model that has one."""

import numpy as np
import pytest
import torch

from attention.adaptive import AdaptiveEmbedding
from attention.batches import IGNORED
from attention.config import ModelConfig
from attention.counts import counts
from attention.evaluate import evaluate
from attention.finetune import finetune
from attention.model import Transformer

CUTOFFS, VOCABULARY, DIM = (7, 12), 30, 16


@pytest.fixture
def adaptive() -> AdaptiveEmbedding:
    torch.manual_seed(0)
    made = AdaptiveEmbedding(VOCABULARY, DIM, CUTOFFS)
    torch.nn.init.normal_(made.bands)
    return made.double()


def language_model() -> Transformer:
    """Wide enough for the 18 words of the last band: they share 64 / 4^2 numbers; of one number only two words could ever be likeliest."""
    config = ModelConfig(
        vocab_size=VOCABULARY, max_length=9, dim=64, heads=2, layers=1, ff=16, dropout=0.0, causal=True, tie_embeddings=True,
        cutoffs=CUTOFFS,
    )  # fmt: skip
    return Transformer(config, rng=1)


def batches() -> list[dict[str, torch.Tensor]]:
    """Sequences in which each word says the next one, through all bands: 0, 7, 14, 21, 28, 5, ..."""
    rows = (torch.from_numpy(np.random.default_rng(0).integers(VOCABULARY, size=(48, 1))) + 7 * torch.arange(9)) % VOCABULARY
    return [{"tokens": rows[start : start + 8], "key_mask": torch.ones(8, 9, dtype=torch.bool)} for start in range(0, 48, 8)]


def test_loss_and_log_probabilities_are_those_of_torch(adaptive: AdaptiveEmbedding) -> None:
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(DIM, VOCABULARY, list(CUTOFFS), div_value=4.0).double()
    with torch.no_grad():
        theirs.head.weight.copy_(torch.cat((adaptive.words[0], adaptive.bands)))
        for band, tail in enumerate(theirs.tail, start=1):
            tail[0].weight.copy_(adaptive.carry[band - 1])
            tail[1].weight.copy_(adaptive.words[band])
    hidden, wanted = torch.randn(40, DIM).double(), torch.randint(VOCABULARY, (40,))
    assert torch.allclose(adaptive.log_probabilities(hidden), theirs.log_prob(hidden))
    assert adaptive.summed_loss(hidden, wanted).item() == pytest.approx(40 * theirs(hidden, wanted).loss.item(), rel=1e-6)


def test_probabilities_sum_to_one_and_ignored_places_cost_nothing(adaptive: AdaptiveEmbedding) -> None:
    hidden = torch.randn(2, 5, DIM).double()
    assert torch.allclose(adaptive.log_probabilities(hidden).exp().sum(-1), torch.ones(2, 5).double())
    wanted = torch.randint(VOCABULARY, (2, 5))
    partly = torch.where(torch.arange(5) < 3, wanted, IGNORED)
    assert torch.allclose(adaptive.summed_loss(hidden, partly), adaptive.summed_loss(hidden[:, :3], wanted[:, :3]))
    assert adaptive.summed_loss(hidden, torch.full((2, 5), IGNORED)).item() == 0


def test_inputs_share_the_words_of_the_output_and_start_with_one_size(adaptive: AdaptiveEmbedding) -> None:
    vectors = adaptive(torch.arange(VOCABULARY))
    assert torch.equal(vectors[:7], adaptive.words[0])
    assert torch.allclose(vectors[12:], adaptive.words[2] @ adaptive.carry[1])
    wide = AdaptiveEmbedding(3000, 256, (1000, 2000))(torch.arange(3000)).view(3, 1000, 256)
    assert torch.allclose(wide.std((1, 2)) * 256**0.5, torch.ones(3), atol=0.15)


def test_a_language_model_trains_by_the_loss_that_its_log_probabilities_have() -> None:
    model, read = language_model(), batches()
    before, _ = evaluate(model, read)
    history = finetune(model, read, n_epochs=30, lr=0.01, rng=0)
    after, accuracy = evaluate(model, read)
    assert after < before / 3
    assert accuracy > 0.95  # 1 in 30 by chance
    assert float(history.train_loss[0]) == pytest.approx(before, rel=0.4)
    assert counts(model, 9)["total"].parameters == sum(p.numel() for p in model.parameters())


def test_wrong_cutoffs_are_refused() -> None:
    for cutoffs, name in [
        ((), "cutoffs"),
        ((5, 5), "cutoffs"),
        ((0,), "cutoffs"),
        ((30,), "cutoffs"),
        ([5], "cutoffs"),
        ((1, 2, 3), "dim"),
    ]:
        with pytest.raises(ValueError, match=name):
            AdaptiveEmbedding(VOCABULARY, DIM, cutoffs)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tie_embeddings"):
        ModelConfig(vocab_size=VOCABULARY, max_length=9, causal=True, cutoffs=CUTOFFS)
