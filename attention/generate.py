"""Text from a causal `Transformer`, token by token, with a state of constant size where the attention is a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attention.batches import checked_tokens
from attention.feature_map import described
from attention.mode import evaluating
from particles.arrays import count, positive

if TYPE_CHECKING:
    from attention.model import Transformer


@torch.no_grad()
def generate(
    model: Transformer,
    tokens: Tensor,
    n_new: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
    key_mask: Tensor | None = None,
) -> Tensor:
    """Continue each row by `n_new` tokens: the prompt in one call, then one token a step, from the `Memory` of what went before.

    A kernel layer's step costs the same at any length; a softmax layer keeps, and reads, all keys and values.

    Parameters
    ----------
    model : a causal language model; used in evaluation mode, its mode restored.
    tokens : (batch, time) prompts. Shorter ones stand at the right end, with `key_mask` (batch, time) False before them.
    temperature : 0 takes the likeliest token; else tokens are drawn with log-probabilities logits / temperature.
    top_k : draw among the k likeliest only.
    generator : source of the draws, on the logits' device; needed where temperature > 0.

    Returns
    -------
    (batch, time + n_new) : the prompts as they were given and the new tokens.

    Raises
    ------
    ValueError
        On a classifier, tokens that do not fit (see `attention.batches.checked_tokens`), a row whose last token is padding, more tokens
        than `max_length`, or sampling options that do not fit.
    """
    key_mask = _checked(model, tokens, n_new, key_mask)
    _check_sampling(temperature, top_k, generator)
    out, last, memory = [tokens], tokens, None
    with evaluating(model):
        for _ in range(n_new):
            hidden, _, memory = model.hidden({"tokens": last, "key_mask": key_mask}, memory=memory, return_memory=True)
            logits = model.logits(hidden[:, -1])
            last = chosen(logits, temperature=temperature, top_k=top_k, generator=generator)[:, None].to(tokens.dtype)
            key_mask = torch.ones_like(last, dtype=torch.bool)
            out.append(last)
    return torch.cat(out, 1)


def chosen(logits: Tensor, *, temperature: float = 0.0, top_k: int | None = None, generator: torch.Generator | None = None) -> Tensor:
    """One token id (batch,) for each row of logits (batch, vocab); see `generate`. Ties within `top_k` are all kept."""
    if temperature == 0:
        return logits.argmax(-1)
    logits = logits.float() / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k, -1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    return torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]


def _checked(model: Transformer, tokens: Tensor, n_new: int, key_mask: Tensor | None) -> Tensor:
    """The key mask, after all checks of what is to be continued."""
    if model.config.n_classes is not None:
        raise ValueError(f"model must be a language model (n_classes=None) to generate, got n_classes={model.config.n_classes}")
    if not isinstance(tokens, Tensor) or tokens.ndim != 2:
        raise ValueError(f"tokens must be integers of shape (batch, time), got {described(tokens)}")
    count(n_new, "n_new", least=0)
    limit = model.config.max_length
    if key_mask is None:
        key_mask = torch.ones_like(tokens, dtype=torch.bool)
    checked_tokens({"tokens": tokens, "key_mask": key_mask}, model.config)
    if not bool(key_mask[:, -1].all()):
        raise ValueError(f"shorter prompts must be padded on the left, got {int((~key_mask[:, -1]).sum())} rows that end in padding")
    if limit is not None and int(key_mask.sum(-1).max()) + n_new > limit:
        raise ValueError(f"n_new must leave prompt and new tokens within max_length={limit}, got {tuple(tokens.shape)} and n_new={n_new}")
    return key_mask


def _check_sampling(temperature: float, top_k: int | None, generator: torch.Generator | None) -> None:
    if positive(temperature, "temperature", zero=True) == 0 and (top_k is not None or generator is not None):
        raise ValueError(f"top_k and generator are for sampling and need temperature > 0, got temperature={temperature!r}")
    if top_k is not None:
        count(top_k, "top_k")
    if temperature > 0 and not isinstance(generator, torch.Generator):
        raise ValueError(f"generator must be a torch.Generator where temperature > 0, got {generator!r}")
