"""The learned measures of a model as files: the particles of each kernel layer, its feature and its weights (`particles.measure`)."""

from __future__ import annotations

from pathlib import Path

import torch

from attention.base import FeatureMap, described
from attention.feature_map import MAPS
from attention.model import Transformer
from particles.measure import Measure, load_measure, save_measure
from particles.trajectory import as_path

PATTERN = "layer{}.safetensors"


def save_measures(model: Transformer, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
    """Write `layer<i>.safetensors` for each layer with particles: omega (head, particle, particle_dim), their weights and feature.

    The metadata hold the layer, the attention's name and tau (or None). Heads take the place of chains in the file. Outside a model a
    measure m becomes a map by the attention's name, with the options that it had:
    feature_map(m.metadata["attention"], dim=..., n_features=..., heads=len(m.omega), omega=m.omega, weights=m.weights), a learned tau by
    copying it into `.tau`. m.feature in the name's place brings its own options, but "rfa" and the Flexformers are more than their
    feature: it lacks their factor exp(|x|^2 ...).

    Raises
    ------
    ValueError
        For a model without particles, or a map whose omega is no particle of a feature.
    FileExistsError
        If a file exists and `overwrite` is not set; then none is written.
    """
    _check(model)
    folder = as_path(folder, "folder")
    paths = [folder / PATTERN.format(layer) for layer in model.kernel_layers]
    for path, feature_map in zip(paths, model.feature_maps, strict=True):
        if feature_map.feature is None or feature_map.omega_k is not None:
            raise ValueError(f"the omega of attention {feature_map.name!r} is no particle of a feature, so it makes no measure")
        if path.exists() and not overwrite:
            raise FileExistsError(f"{str(path)!r} exists already: name another folder, or pass overwrite=True")
    for layer, path, feature_map in zip(model.kernel_layers, paths, model.feature_maps, strict=True):
        tau = None if feature_map.tau is None else feature_map.tau.detach().tolist()
        omega = feature_map.omega.detach().cpu().contiguous()
        weights = None if feature_map.weights is None else feature_map.weights.double() / feature_map.weights.double().sum(-1, keepdim=True)
        about = {"layer": layer, "attention": feature_map.name, "tau": tau}
        save_measure(path, omega, feature_map.feature, weights=weights, overwrite=overwrite, **about)  # type: ignore[arg-type]
    return paths


def load_measures(folder: str | Path, model: Transformer | None = None) -> dict[int, Measure]:
    """The measures of `save_measures` by layer; with `model` they also become its particles, weights and tau.

    Raises
    ------
    FileNotFoundError
        If the folder holds no measure, or none for one of the model's layers.
    ValueError
        If a file is damaged or does not fit the model's map: another feature or formula, another shape, or weights where the map has none.
    """
    found = {int(path.stem[5:]): path for path in as_path(folder, "folder").glob(PATTERN.format("*")) if path.stem[5:].isdigit()}
    wanted = sorted(found) if model is None else _check(model).kernel_layers
    if not wanted:
        raise FileNotFoundError(f"folder {str(folder)!r} must hold measures, files {PATTERN.format('<i>')} of save_measures: got none")
    if set(wanted) - set(found):
        raise FileNotFoundError(f"folder {str(folder)!r} must hold measures of layers {wanted}, got those of {sorted(found)}")
    measures = {layer: load_measure(found[layer]) for layer in wanted}
    if model is not None:
        for layer, feature_map in zip(model.kernel_layers, model.feature_maps, strict=True):
            _check_fit(measures[layer], feature_map, layer)
        for layer, feature_map in zip(model.kernel_layers, model.feature_maps, strict=True):
            _write(measures[layer], feature_map)
    return measures


def _check(model: Transformer) -> Transformer:
    if not isinstance(model, Transformer):
        raise ValueError(f"model must be a Transformer, got {described(model)}")
    if not model.kernel_layers:
        raise ValueError(f"model must have kernel attention, got {model.config.attention!r}")
    return model


def _check_fit(measure: Measure, feature_map: FeatureMap, layer: int) -> None:
    """ValueError unless the map computes the measure's kernel once it has its numbers."""
    if feature_map.feature != measure.feature or tuple(feature_map.omega.shape) != measure.omega.shape:
        raise ValueError(
            f"layer {layer} must have particles {measure.omega.shape} of {measure.feature!r}, "
            f"got {tuple(feature_map.omega.shape)} of {feature_map.feature!r}"
        )
    saved = str(measure.metadata.get("attention"))
    if _formula(saved) != _formula(feature_map.name):
        raise ValueError(f"layer {layer} must have the attention of its measure, {saved!r}, got {feature_map.name!r}")
    equal = abs(measure.weights - 1 / measure.weights.shape[-1]).max() < 1e-6
    if feature_map.weights is None and not equal:
        raise ValueError(f"layer {layer} has equal weights: it cannot take a measure's unequal ones")
    if (feature_map.tau is None) != (measure.metadata.get("tau") is None):
        raise ValueError(f"layer {layer} must have tau where the measure has it, got attention {feature_map.name!r}")


def _formula(name: str) -> tuple | None:
    """What two names of maps share if they differ in their first draw only; None for a feature's own name."""
    kind = MAPS.get(name)
    return None if kind is None else (kind.build, kind.feature, dict(kind.fixed))


@torch.no_grad()
def _write(measure: Measure, feature_map: FeatureMap) -> None:
    feature_map.load_omega(measure.omega)
    if feature_map.weights is not None:
        feature_map.weights.copy_(torch.from_numpy(measure.weights))
    if feature_map.tau is not None:
        feature_map.tau.copy_(torch.tensor(measure.metadata["tau"]))
