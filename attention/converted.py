"""Models with kernels as files: what `save_pretrained` writes, and kernel.json, which says what to build before the weights are read.

The weights of kernels lie with the others, under the names that they have in the model. A plain `from_pretrained` builds a model without
kernels and would drop them with a warning, so the saved config.json asks for the attention "kernelgas": without this package that raises
while loading, with it at the first forward pass. Only whoever passes attn_implementation="sdpa" as well gets past both, to softmax.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoConfig, PreTrainedModel
from transformers.utils import cached_file

from attention.base import FeatureMap, Particles
from attention.feature_map import MAPS, feature_map
from attention.floored import FlooredKernel
from attention.huggingface import NAME, attach, layer_kernels, softmax_of
from attention.invariance import Invariance
from attention.layer_kernel import LayerKernel
from attention.nystrom import Nystrom
from particles.features import Feature, feature_from_description
from particles.trajectory import versions

FORMAT = 1
FILE = "kernel.json"
_KERNELS = {cls.__name__: cls for cls in (LayerKernel, FlooredKernel)}
_DOWNLOAD = ("cache_dir", "revision", "token", "local_files_only", "subfolder")  # options of from_pretrained that say where files are


def save_converted(model: PreTrainedModel, path: str | os.PathLike, **options: Any) -> None:
    """Write a model and its kernels into the folder `path`, for `load_converted`.

    options are `save_pretrained`'s (max_shard_size, ...). Files of the same names are replaced, as there. The folder as a whole can be
    uploaded to the Hugging Face hub.

    Raises
    ------
    ValueError
        For push_to_hub, which would upload half of the files; for a model without kernels, or with one that was not made by `feature_map`
        or `convert` (or a preprocessing that is no `Invariance`).
    """
    if options.get("push_to_hub"):
        raise ValueError("push_to_hub must be False, upload the folder when it is complete (huggingface_hub.upload_folder), got True")
    kernels = layer_kernels(model)
    if not kernels:
        raise ValueError(f"model must have kernels attached, got a {type(model).__name__} without any (save_pretrained saves those)")
    described = {
        "format": FORMAT,
        "softmax": softmax_of(model),
        "versions": versions("kernelgas", "torch", "transformers"),
        "layers": {str(layer): _describe(layer, kernel) for layer, kernel in kernels.items()},
    }
    text = json.dumps(described, indent=1, default=_plain)
    model.save_pretrained(path, **options)
    config = Path(path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"attn_implementation": NAME}, indent=2, sort_keys=True) + "\n")
    (Path(path) / FILE).write_text(text)


def load_converted(path: str | os.PathLike, *, model_class: type[PreTrainedModel] | None = None, **options: Any) -> PreTrainedModel:
    """Read what `save_converted` wrote: a folder, or the name of a repository on the Hugging Face hub. In evaluation mode, bit for bit.

    Parameters
    ----------
    model_class : class of the model; the one that was saved if None, of transformers.
    options : `from_pretrained`'s (dtype, device_map, revision, token, local_files_only, ...).

    Raises
    ------
    ValueError
        Without kernel.json, for one of a newer format, a class that transformers does not have, or weights that are missing, left over or
        of another shape: loading is strict.
    """
    download: dict[str, Any] = {name: options[name] for name in _DOWNLOAD if name in options}
    found = cached_file(path, FILE, _raise_exceptions_for_missing_entries=False, **download)
    if found is None:
        raise ValueError(f"path must be a folder or repository with {FILE}, written by save_converted, got {str(path)!r}")
    described = json.loads(Path(found).read_text())
    if described["format"] > FORMAT:
        raise ValueError(f"path {str(path)!r} has format {described['format']}, this version reads up to {FORMAT}")
    base = _class_of(path, model_class, download)
    kernels = {int(layer): _build(kernel) for layer, kernel in described["layers"].items()}

    def build(self: PreTrainedModel, *args: Any, **kwargs: Any) -> None:
        base.__init__(self, *args, **kwargs)
        attach(self, kernels)

    attached = type(base.__name__, (base,), {"__init__": build, "__module__": base.__module__})
    options |= {"attn_implementation": described["softmax"], "output_loading_info": True}
    model, info = attached.from_pretrained(path, **options)  # type: ignore[attr-defined]
    wrong = {what: sorted(map(str, names)) for what, names in info.items() if names}
    if wrong:
        raise ValueError(f"path {str(path)!r} does not fit its {FILE}: {wrong}")
    model.__class__ = base
    for layer, kernel in layer_kernels(model).items():
        for name, parameter in kernel.named_parameters():
            parameter.requires_grad_(name not in described["layers"][str(layer)]["frozen"])
    return model


def _class_of(path: Any, model_class: type[PreTrainedModel] | None, download: dict[str, Any]) -> type[PreTrainedModel]:
    """The given class, or the one that the config names."""
    if model_class is not None:
        if not isinstance(model_class, type) or not issubclass(model_class, PreTrainedModel):
            raise ValueError(f"model_class must be a class of transformers' models, got {model_class!r}")
        return model_class
    names = AutoConfig.from_pretrained(path, **download).architectures or ["none"]
    if not hasattr(transformers, names[0]):
        raise ValueError(f"model_class must be given where transformers does not have the class, got None for {names[0]!r}")
    return getattr(transformers, names[0])


def _describe(layer: int, kernel: LayerKernel) -> dict[str, Any]:
    """All of a kernel but its numbers, as JSON values."""
    arguments, preprocess = _arguments(kernel.feature_map), kernel.preprocess
    if arguments is None or type(kernel).__name__ not in _KERNELS:
        raise ValueError(f"model must have kernels made by feature_map or convert to be saved, got {kernel!r} in layer {layer}")
    if not isinstance(preprocess, Invariance | None):
        raise ValueError(f"model must have an Invariance or nothing before its kernels to be saved, got {preprocess!r} in layer {layer}")
    return {
        "kernel": type(kernel).__name__,
        "feature_map": arguments,
        "weights": kernel.feature_map.weights is not None,
        "normalise": kernel.normalise,
        "preprocess": None if preprocess is None else preprocess.describe(),
        "softmax_heads": None if kernel.softmax_heads is None else kernel.softmax_heads.tolist(),
        "frozen": [name for name, parameter in kernel.named_parameters() if not parameter.requires_grad],
    }


def _arguments(made: FeatureMap) -> dict[str, Any] | None:
    """What `_feature_map` needs to make one like it."""
    if isinstance(made, Nystrom):
        return {"name": made.name, "shape": list(made.omega.shape), "ridge": made.ridge}
    return made.arguments


def _feature_map(arguments: dict[str, Any]) -> FeatureMap:
    """A map of these arguments, with other numbers."""
    name, rest = arguments["name"], {key: value for key, value in arguments.items() if key != "name"}
    if "ridge" in arguments:
        return Nystrom(name, Particles(torch.zeros(rest["shape"])), ridge=rest["ridge"])
    if isinstance(name, str) and MAPS[name].square:  # a given omega may have had any number of particles, the map's own has not
        rest["omega"] = torch.zeros(rest["n_features"] // MAPS[name].width, rest["dim"])
    return feature_map(name if isinstance(name, str) else feature_from_description(name), **rest)


def _build(described: dict[str, Any]) -> LayerKernel:
    """A kernel of that description, with other numbers."""
    made = _feature_map(described["feature_map"])
    if described["weights"]:
        made.register_buffer("weights", torch.empty(made.omega.shape[:2]))
    preprocess, softmax_heads = described["preprocess"], described["softmax_heads"]
    return _KERNELS[described["kernel"]](
        made,
        normalise=described["normalise"],
        preprocess=None if preprocess is None else Invariance.blank(**preprocess),
        softmax_heads=None if softmax_heads is None else torch.tensor(softmax_heads),
    )


def _plain(value: Any) -> Any:
    """JSON values of what an option of a feature map may be."""
    if isinstance(value, Feature):
        return value.describe()
    if isinstance(value, Tensor) or hasattr(value, "tolist"):
        return value.tolist()
    raise ValueError(f"options of a feature map must be JSON values to be saved, got {value!r}")
