"""Small models, their batches, and made-up activations for the tests of conversion."""

from __future__ import annotations

import torch
import transformers

from attention.activations import Activations, log_softmax_rows, visible


def seen(seed=0, batch=3, heads=2, time=9, dim=4, *, causal=False, scale=0.8, padded=2, dtype=torch.float64):
    """Activations whose queries and keys have means and unlike covariances."""
    g = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(batch, heads, time, dim, generator=g, dtype=dtype) for _ in range(3))
    mix, shift = torch.randn(2, heads, dim, dim, generator=g, dtype=dtype), torch.randn(2, heads, 1, dim, generator=g, dtype=dtype)
    mask = torch.ones(batch, time, dtype=torch.bool)
    mask[0, time - padded :] = False
    return Activations(scale * (q @ mix[0]) + shift[0], scale * (k @ mix[1]) + shift[1], v, mask, causal)


def tiny(kind="bert", *, head=False, **options):
    """A small untrained model whose attention is not uniform (with a language model's head, if wanted), and batches for it."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "initializer_range": 0.3, **options}
    if kind == "bert":
        config = transformers.BertConfig(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=32, **sizes
        )
        model = transformers.BertModel(config)
    elif kind == "gpt2":
        model = (transformers.GPT2LMHeadModel if head else transformers.GPT2Model)(
            transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, **sizes)
        )
    else:
        config = transformers.LlamaConfig(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=32, **sizes
        )
        model = (transformers.LlamaForCausalLM if head else transformers.LlamaModel)(config)
    return model.eval(), token_batches()


def token_batches(n=4, time=11, seed=0):
    g = torch.Generator().manual_seed(seed)
    batches = []
    for _ in range(n):
        mask = torch.ones(5, time, dtype=torch.long)
        mask[0, -3:] = 0
        batches.append({"input_ids": torch.randint(3, 50, (5, time), generator=g), "attention_mask": mask})
    return batches


def rows(activations, preprocess=None):
    if preprocess is None:
        return log_softmax_rows(activations.q, activations.k, None, visible(activations)).exp()
    q, k, weight = preprocess(activations.q, activations.k, activations.key_mask)
    return log_softmax_rows(q, k, weight, visible(activations)).exp()
