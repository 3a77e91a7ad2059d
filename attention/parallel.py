"""One training run over several processes: which rows are mine, and sums over all of them.

Without an initialised `torch.distributed` process group there is one process, which has all rows. A script for several, started by
`torchrun --nproc-per-node 2 train.py`:

    torch.distributed.init_process_group("gloo")  # on GPUs: "nccl", and model.to(f"cuda:{os.environ['LOCAL_RANK']}")
    model = Transformer(config, rng=0)
    finetune(model, batches, checkpoint="run.pt", rng=0)  # the same batches in every process, each takes its rows
    if torch.distributed.get_rank() == 0:
        torch.save(model.state_dict(), "model.pt")
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from attention.batches import Batch


def grouped() -> bool:
    """Whether this process belongs to a process group."""
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if grouped() else 0


def world() -> int:
    """Number of processes."""
    return dist.get_world_size() if grouped() else 1


def shard(batch: Batch) -> Batch:
    """This process's rows of a batch that every process holds: each `world()`-th one. May be none."""
    return batch if world() == 1 else {name: value[rank() :: world()] for name, value in batch.items()}


def total(values: Tensor) -> Tensor:
    """The sum over all processes, the same bits in each."""
    if grouped():
        dist.all_reduce(values)
    return values


def wrapped(model: nn.Module) -> Any:
    """`model`, or, in a process group, what averages its gradients over the processes; the first one's parameters are given to all."""
    return nn.parallel.DistributedDataParallel(model) if grouped() else model


@torch.no_grad()
def spread(parameters: Any) -> None:
    """Give the first process's values of the parameters to all."""
    for parameter in parameters if grouped() else ():
        dist.broadcast(parameter, 0)


def wait() -> None:
    """Until every process is here."""
    if grouped():
        dist.barrier()
