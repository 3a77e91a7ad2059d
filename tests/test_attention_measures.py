"""Files of learned measures outside the model that wrote them."""

from __future__ import annotations

import pytest
import torch

from attention import ModelConfig, Transformer, feature_map, kernel_attention, load_measures, save_measures


def learned(attention, folder, **options):
    """A trained-looking map of four heads, and the measure that its model's file holds."""
    model = Transformer(
        ModelConfig(n_classes=2, max_length=8, input_dim=8, dim=32, attention=attention, n_features=16, feature_options=options)
    )
    with torch.no_grad():
        for parameter in model.feature_maps[0].parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    save_measures(model, folder)
    return model.feature_maps[0], load_measures(folder)[0]


def outputs(phi):
    q, k, v = torch.randn(3, 2, 4, 20, 8, generator=torch.Generator().manual_seed(1))
    return kernel_attention(q, k, v, phi)


@pytest.mark.parametrize(
    ("attention", "options"),
    [
        ("flexformer", {}),
        ("flexformer-nonstationary", {}),
        ("rfa", {}),
        ("fourier", {}),
        ("phase", {}),
        ("favor", {}),
        ("favor-hyperbolic", {}),
        ("softplus", {"floor": 0.1}),
        ("cos2", {"renormalise": False}),
    ],
)
def test_a_measure_becomes_the_models_map_by_the_attentions_name_and_options(attention, options, tmp_path):
    made, m = learned(attention, tmp_path, **options)
    sizes = {"dim": 8, "n_features": 16, "heads": len(m.omega), "omega": m.omega, "weights": m.weights}
    phi = feature_map(m.metadata["attention"], **sizes, **options)
    if phi.tau is not None:
        phi.tau.data.copy_(torch.tensor(m.metadata["tau"]))
    torch.testing.assert_close(outputs(phi), outputs(made), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("attention", "same"), [("softplus", True), ("fourier", True), ("rfa", False), ("flexformer", False)])
def test_the_feature_alone_lacks_the_factor_that_a_map_has_beside_it(attention, same, tmp_path):
    made, m = learned(attention, tmp_path)
    phi = feature_map(m.feature, dim=8, n_features=16, heads=4, omega=m.omega, weights=m.weights)
    assert torch.allclose(outputs(phi), outputs(made), atol=1e-4) == same


def test_a_folder_without_measures_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"must hold measures, files layer<i>.safetensors .*got none"):
        load_measures(tmp_path)


@pytest.mark.parametrize(
    ("saved", "other", "fits"),
    [("flexformer", "fourier", False), ("flexformer", "rfa", True), ("porf-softplus", "softplus", True), ("elu", "elu+1", True)],
)
def test_a_model_takes_measures_of_its_own_formula_only(saved, other, fits, tmp_path):
    learned(saved, tmp_path)
    model = Transformer(ModelConfig(n_classes=2, max_length=8, input_dim=8, dim=32, attention=other, n_features=16))
    if fits:
        load_measures(tmp_path, model)
        return
    with pytest.raises(ValueError, match=f"layer 0 must have the attention of its measure, '{saved}', got '{other}'"):
        load_measures(tmp_path, model)
