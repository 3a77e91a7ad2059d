from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from attention.batches import IGNORED, next_tokens
from attention.finetune import evaluate, finetune, predict
from attention.model import ModelConfig, Transformer


def small(attention: str = "softplus", **changes) -> Transformer:
    sizes = {"n_classes": 2, "max_length": 6, "vocab_size": 10, "dim": 16, "heads": 2, "ff": 16, "n_features": 8, "dropout": 0.2}
    return Transformer(ModelConfig(**{**sizes, "attention": attention, **changes}), rng=1)


def task(n: int = 96, seed: int = 0) -> dict[str, torch.Tensor]:
    """Rows of 6 tokens, some padded; the label says whether token 3 occurs."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(10, (n, 6), generator=generator)
    tokens = torch.where(tokens == 3, 4, tokens)
    labels = torch.arange(n) % 2
    tokens[labels == 1, 0] = 3
    key_mask = torch.arange(6) < torch.randint(2, 7, (n, 1), generator=generator)
    return {"tokens": tokens, "key_mask": key_mask, "labels": labels}


class Shuffled:
    """A loader with a state: every pass is in another order."""

    def __init__(self, data: dict[str, torch.Tensor], size: int = 32, seed: int = 0) -> None:
        self.data, self.size, self.rng = data, size, np.random.default_rng(seed)

    def __iter__(self):
        order = torch.from_numpy(self.rng.permutation(len(self.data["labels"])))
        for rows in order.split(self.size):
            yield {name: value[rows] for name, value in self.data.items()}


def batches(n: int = 96, size: int = 32, **changes) -> list[dict[str, torch.Tensor]]:
    data = {**task(n), **changes}
    return [{name: value[i : i + size] for name, value in data.items()} for i in range(0, n, size)]


@pytest.mark.parametrize("attention", ["softmax", "softplus", "fourier"])
def test_it_learns_a_simple_task(attention):
    model = small(attention)
    history = finetune(model, batches(), n_epochs=12, lr=1e-2, validation=batches(), rng=0)
    assert history.sizes == {"epoch": 12}
    assert float(history.train_loss[-1]) < 0.3 < 0.6 < float(history.train_loss[0])
    assert float(history.accuracy[-1]) > 0.95
    assert bool((history.seconds > 0).all())
    loss, accuracy = evaluate(model, batches())
    assert (loss, accuracy) == (float(history.validation_loss[-1]), float(history.accuracy[-1]))


def test_frozen_particles_do_not_change_by_a_bit_and_released_ones_do():
    frozen, released = small(), small()
    before = frozen.feature_maps[0].omega.detach().clone()
    finetune(frozen, batches(), n_epochs=2, weight_decay=0.5, rng=0)
    finetune(released, batches(), n_epochs=2, freeze_omega=False, omega_lr=0.1, rng=0)
    assert torch.equal(frozen.feature_maps[0].omega, before)
    assert not torch.equal(released.feature_maps[0].omega, before)
    assert not torch.equal(frozen.head.weight, small().head.weight)


def test_the_rate_of_the_particles_is_their_own():
    moves = []
    for omega_lr in (1e-4, 1e-2):
        model = small()
        before = model.feature_maps[0].omega.detach().clone()
        finetune(model, batches(), freeze_omega=False, omega_lr=omega_lr, rng=0)
        moves.append(float((model.feature_maps[0].omega.detach() - before).abs().max()))
    assert 30 < moves[1] / moves[0] < 300  # Adam's first steps are as long as the rate


@pytest.mark.parametrize("freeze_omega", [True, False])
def test_an_interrupted_run_ends_bitwise_like_an_uninterrupted_one(tmp_path, freeze_omega):
    options = {"n_epochs": 4, "freeze_omega": freeze_omega, "validation": batches(), "rng": 5}
    whole = small()
    expected = finetune(whole, Shuffled(task()), **options)

    class Stop(Exception):
        pass

    class Failing(Shuffled):
        passes = 0

        def __iter__(self):
            self.passes += 1
            if self.passes == 4:  # one pass counts the batches, so this is the third epoch
                raise Stop
            return super().__iter__()

    with pytest.raises(Stop):
        finetune(small(), Failing(task()), checkpoint=tmp_path / "run.pt", **options)
    resumed = small()
    got = finetune(resumed, Shuffled(task()), checkpoint=tmp_path / "run.pt", **options)
    for name in ("train_loss", "validation_loss", "accuracy"):
        np.testing.assert_array_equal(got[name], expected[name])
    assert all(torch.equal(a, b) for a, b in zip(resumed.parameters(), whole.parameters(), strict=True))
    again = small()
    np.testing.assert_array_equal(finetune(again, Shuffled(task()), checkpoint=tmp_path / "run.pt", **options).seconds, got.seconds)
    assert torch.equal(again.head.weight, whole.head.weight)
    assert [p.name for p in tmp_path.iterdir()] == ["run.pt"]


class Stop(Exception):
    pass


class Cut(Shuffled):
    """Shuffled batches that end the run by an exception before batch number `cut` of all epochs."""

    def __init__(self, data: dict[str, torch.Tensor], cut: int) -> None:
        super().__init__(data, size=16)
        self.left = cut

    def __len__(self) -> int:
        return 6

    def __iter__(self):
        for batch in super().__iter__():
            if self.left == 0:
                raise Stop
            self.left -= 1
            yield batch


@pytest.mark.parametrize(("cut", "precision"), [(1, "float32"), (4, "bfloat16"), (6, "float32"), (9, "float32"), (17, "bfloat16")])
def test_a_run_cut_in_the_middle_of_an_epoch_ends_bitwise_like_a_whole_one(tmp_path, cut, precision):
    options = {"n_epochs": 3, "freeze_omega": False, "validation": batches(), "precision": precision, "rng": 5}
    whole, resumed = small(), small()
    expected = finetune(whole, Cut(task(), -1), **options)
    with pytest.raises(Stop):
        finetune(small(), Cut(task(), cut), checkpoint=tmp_path / "run.pt", checkpoint_every=2, **options)
    assert (tmp_path / "run.pt").exists() == (cut >= 2)
    got = finetune(resumed, Cut(task(), -1), checkpoint=tmp_path / "run.pt", checkpoint_every=5, **options)
    for name in ("train_loss", "validation_loss", "accuracy"):
        np.testing.assert_array_equal(got[name], expected[name])
    assert all(torch.equal(a, b) for a, b in zip(resumed.parameters(), whole.parameters(), strict=True))


def test_a_checkpoint_of_another_version_is_refused(tmp_path):
    path = tmp_path / "run.pt"
    torch.save({"settings": {}, "model": {}, "optimiser": {}, "schedule": {}, "history": {}}, path)
    with pytest.raises(ValueError, match="another version or kind: it lacks"):
        finetune(small(), batches(), checkpoint=path, rng=0)
    torch.save([1, 2], path)
    with pytest.raises(ValueError, match="another version or kind"):
        finetune(small(), batches(), checkpoint=path, rng=0)


def test_particles_given_to_the_model_are_settings_like_others(tmp_path):
    given = {name: {"feature_options": {"omega": torch.full((8, 8), value)}} for name, value in (("one", 1.0), ("two", 2.0))}
    for _ in range(2):
        history = finetune(small(**given["one"]), batches(), checkpoint=tmp_path / "run.pt", rng=0)
    assert history.sizes == {"epoch": 1}
    with pytest.raises(ValueError, match="other settings"):
        finetune(small(**given["two"]), batches(), checkpoint=tmp_path / "run.pt", rng=0)


def text(n: int = 64, time: int = 12) -> dict[str, torch.Tensor]:
    """Rows that count upwards modulo 10 from anywhere; the first tokens of some rows are padding."""
    tokens = (torch.arange(n)[:, None] * 7 + torch.arange(time)) % 10
    return {"tokens": tokens, "key_mask": torch.arange(time) >= torch.arange(n)[:, None] % 5}


def language(attention: str = "softplus", **changes) -> Transformer:
    return small(attention, **{"n_classes": None, "causal": True, "max_length": 12, "dropout": 0.0, **changes})


@pytest.mark.parametrize("attention", ["softmax", "softplus", "fourier"])
def test_a_language_model_learns_to_continue(attention):
    model = language(attention)
    history = finetune(model, [text()], n_epochs=40, lr=1e-2, validation=[text()], rng=0)
    assert float(history.train_loss[0]) == pytest.approx(math.log(10), abs=0.7)
    assert float(history.accuracy[-1]) > 0.95
    assert evaluate(model, [text()]) == (float(history.validation_loss[-1]), float(history.accuracy[-1]))
    assert model.generate(torch.tensor([[3, 4]]), 6).tolist() == [[3, 4, 5, 6, 7, 8, 9, 0]]


def test_targets_of_a_language_model_are_shifted_inside_and_never_padding():
    batch = {"tokens": torch.tensor([[9, 3, 4, 5]]), "key_mask": torch.tensor([[False, True, True, True]])}
    assert next_tokens(batch, 10).tolist() == [[IGNORED, 4, 5, IGNORED]]
    right = {**batch, "key_mask": batch["key_mask"].flip(1)}
    assert next_tokens(right, 10).tolist() == [[3, 4, IGNORED, IGNORED]]
    labels = torch.tensor([[IGNORED, IGNORED, 7, IGNORED]])
    assert next_tokens({**batch, "labels": labels}, 10).tolist() == [[IGNORED, 7, IGNORED, IGNORED]]
    model = language()
    probabilities, wanted = predict(model, [{**batch, "labels": labels}])
    assert (probabilities.shape, wanted.tolist()) == ((1, 10), [7])
    logits = model.eval()(batch)
    torch.testing.assert_close(probabilities[0], logits[0, 1].double().softmax(-1).detach())


def test_the_loss_of_a_language_model_is_the_mean_over_predicted_tokens():
    model, data = language(), text(8)
    logits = model(data)[:, :-1]
    both = data["key_mask"][:, 1:] & data["key_mask"][:, :-1]
    expected = torch.nn.functional.cross_entropy(logits[both], data["tokens"][:, 1:][both])
    history = finetune(model, [data], rng=0)
    assert float(history.train_loss[0]) == pytest.approx(float(expected.detach()), rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": torch.full((8, 12), 10)}, r"labels must be in \[0, 10\)"),
        ({"labels": torch.zeros(8, dtype=torch.long)}, "labels must be integers of shape"),
        ({"labels": torch.zeros(8, 12)}, "labels must be integers of shape"),
        ({"labels": torch.full((8, 12), IGNORED)}, "must hold a target"),
    ],
)
def test_bad_targets_of_a_language_model_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        finetune(language(), [{**text(8), **changes}], rng=0)


@pytest.mark.parametrize(
    ("attention", "precision"), [("softmax", "bfloat16"), ("softplus", "bfloat16"), ("softplus", "float16"), ("fourier", "float16")]
)
def test_half_precision_trains_about_as_well_and_keeps_float32_parameters(attention, precision):
    model = small(attention)
    history = finetune(model, batches(), n_epochs=12, lr=1e-2, validation=batches(), precision=precision, rng=0)
    assert float(history.accuracy[-1]) > 0.95
    assert all(p.dtype == torch.float32 and bool(torch.isfinite(p).all()) for p in model.parameters())
    full = finetune(small(attention), batches(), rng=0)
    assert 0 < abs(float(history.train_loss[0]) - float(full.train_loss[0])) < 0.3


def test_it_stops_early_and_takes_the_best_weights(tmp_path):
    wrong = [{**batch, "labels": 1 - batch["labels"]} for batch in batches()]  # the better it learns, the worse it validates
    options = {"n_epochs": 30, "lr": 1e-2, "warmup": 0.0, "validation": wrong, "patience": 3, "rng": 0}
    history = finetune(small(), batches(), checkpoint=tmp_path / "run.pt", **options)
    losses = history.validation_loss.values
    assert history.sizes["epoch"] == int(losses.argmin()) + 4 < 30
    again = finetune(small(), batches(), checkpoint=tmp_path / "run.pt", **options)
    np.testing.assert_array_equal(again.validation_loss, losses)
    for path in (None, tmp_path / "best.pt", tmp_path / "best.pt"):
        best = small()
        finetune(best, batches(), restore_best=True, checkpoint=path, **options)
        assert evaluate(best, wrong)[0] == losses.min()


def test_the_share_of_bad_denominators_is_recorded_where_there_can_be_any():
    literal = {"normalise": "sum", "unit_norm": False}
    shares = {}
    for name, changes in (("literal", literal), ("recipe", {}), ("softmax", {"attention": "softmax"})):
        shares[name] = finetune(small(**{"attention": "flexformer", **changes}), batches(), n_epochs=2, rng=0).nonpositive
    assert bool(((shares["literal"] >= 0) & (shares["literal"] <= 1)).all())
    assert bool(shares["recipe"].isnull().all())
    assert bool(shares["softmax"].isnull().all())


def test_all_denominators_of_an_anticorrelated_kernel_are_bad():
    """A planted fault: keys minus queries make the identity map's denominators negative wherever a token agrees with the mean."""
    model = small("identity", normalise="sum", n_features=8, vocab_size=None, input_dim=3, positions=None, dropout=0.0)
    with torch.no_grad():
        model.blocks[0].attention.qkv.weight[16:32] = -model.blocks[0].attention.qkv.weight[:16]
        model.blocks[0].attention.qkv.bias[16:32] = -model.blocks[0].attention.qkv.bias[:16]
    batch = {"tokens": torch.ones(4, 6, 3), "key_mask": torch.ones(4, 6, dtype=torch.bool), "labels": torch.arange(4) % 2}
    assert float(finetune(model, [batch], rng=0).nonpositive[0]) == 1.0


def test_a_checkpoint_of_other_settings_is_refused_and_kept(tmp_path):
    path = tmp_path / "run.pt"
    finetune(small(), batches(), checkpoint=path, rng=0)
    content = path.read_bytes()
    with pytest.raises(ValueError, match="lr"):
        finetune(small(), batches(), checkpoint=path, lr=0.5, rng=0)
    with pytest.raises(ValueError, match="ff"):
        finetune(small(ff=8), batches(), checkpoint=path, rng=0)
    with pytest.raises(ValueError, match="n_batches"):
        finetune(small(), batches()[:1], checkpoint=path, rng=0)
    assert path.read_bytes() == content


def test_a_checkpoint_that_cannot_be_read_or_written_is_named_at_once(tmp_path):
    (tmp_path / "run.pt").write_bytes(b"broken")
    with pytest.raises(ValueError, match=r"cannot be read: it is no checkpoint, or a damaged one$"):
        finetune(small(), batches(), checkpoint=tmp_path / "run.pt", rng=0)
    for path in (tmp_path / "run.pt", tmp_path / "missing" / "run.pt"):
        model = small()
        with pytest.raises(ValueError, match="checkpoint"):
            finetune(model, batches(), checkpoint=path, rng=0)
        assert torch.equal(model.head.weight, small().head.weight)
    assert (tmp_path / "run.pt").read_bytes() == b"broken"


def test_global_state_and_mode_are_left_alone():
    model = small().eval()
    state = torch.get_rng_state()
    first = finetune(model, batches(), rng=0)
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training
    torch.rand(7)
    assert float(finetune(small(), batches(), rng=0).train_loss[0]) == float(first.train_loss[0])
    assert float(finetune(small(), batches(), rng=1).train_loss[0]) != float(first.train_loss[0])


def test_without_validation_its_columns_are_nan():
    history = finetune(small(), batches(), rng=0)
    assert math.isnan(float(history.accuracy[0]))
    assert math.isnan(float(history.validation_loss[0]))


def test_predict_returns_probabilities_in_order():
    probabilities, labels = predict(small(), batches())
    assert torch.equal(labels, task()["labels"])
    torch.testing.assert_close(probabilities.sum(1), torch.ones(96, dtype=torch.float64))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.full((96,), 2), r"labels must be in \[0, 2\)"),
        (torch.full((96,), -1), r"labels must be in \[0, 2\)"),
        (torch.zeros(96), "labels must be integers"),
        (torch.zeros(96, dtype=torch.bool), "labels must be integers"),
        (np.zeros(96, dtype=int), "labels must be a torch tensor"),
        (torch.zeros(96, 1, dtype=torch.long), "labels must be integers"),
    ],
)
def test_bad_labels_are_named(labels, message):
    with pytest.raises(ValueError, match=message):
        finetune(small(), batches(labels=labels), rng=0)
    with pytest.raises(ValueError, match=message):
        evaluate(small(), batches(labels=labels))


def test_bad_batches_are_named():
    unlabelled = [{k: v for k, v in batch.items() if k != "labels"} for batch in batches()]
    with pytest.raises(ValueError, match="labels"):
        finetune(small(), unlabelled, rng=0)
    with pytest.raises(ValueError, match="at least one batch"):
        finetune(small(), [], rng=0)
    with pytest.raises(ValueError, match="more than once"):
        finetune(small(), iter(batches()), rng=0)
    with pytest.raises(ValueError, match="at least one batch"):
        predict(small(), [])
    for batches_, got in ((task(), "a dict"), (None, "a NoneType")):
        with pytest.raises(ValueError, match=f"batches must be an iterable of batches, got {got}"):
            evaluate(small(), batches_)
        with pytest.raises(ValueError, match=f"batches must be an iterable of batches, got {got}"):
            finetune(small(), batches_, rng=0)
    with pytest.raises(ValueError, match="batch must be a dict of tensors, got a list"):
        finetune(small(), [[1, 2]], rng=0)
    with pytest.raises(ValueError, match="'tokens'"):
        finetune(small(), [{"labels": task()["labels"]}], rng=0)
    with pytest.raises(ValueError, match="model must be a Transformer, got a str"):
        finetune("model", batches(), rng=0)


def test_a_pass_without_batches_is_named():
    class Emptied(list):
        passes = 0

        def __iter__(self):
            self.passes += 1
            return iter(list(super().__iter__()) if self.passes < 3 else [])

    with pytest.raises(ValueError, match="at least one batch on every pass, got none in epoch 1"):
        finetune(small(), Emptied(batches()), n_epochs=3, rng=0)


def test_validation_that_can_be_read_only_once_is_refused_before_training():
    model = small()
    for validation, message in ((iter(batches()), "more than once"), (5, "got a int")):
        with pytest.raises(ValueError, match=f"validation.*{message}"):
            finetune(model, batches(), validation=validation, rng=0)
    assert torch.equal(model.head.weight, small().head.weight)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "lr"),
        ({"n_epochs": 0}, "n_epochs"),
        ({"omega_lr": 0.1}, "freeze_omega=False"),
        ({"omega_lr": -0.1, "freeze_omega": False}, "omega_lr"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"clip": float("nan")}, "clip"),
        ({"warmup": 1.5}, "warmup"),
        ({"rng": -1}, "rng"),
        ({"freeze_omega": "no"}, "freeze_omega must be True or False, got 'no'"),
        ({"checkpoint": 5}, "checkpoint must be a path, got 5"),
        ({"precision": "int8"}, "precision must be one of"),
        ({"patience": 3}, "need validation batches"),
        ({"restore_best": True}, "need validation batches"),
        ({"patience": 0, "validation": batches()}, "patience"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"checkpoint_every": 5}, "checkpoint_every needs a checkpoint, got 5"),
        ({"rng": None}, "rng must be an integer of at least 0, a NumPy or a torch generator, got None"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        finetune(small(), batches(), **{"rng": 0, **options})


def test_a_loss_that_is_not_finite_stops_the_run():
    model = small(vocab_size=None, input_dim=1)
    data = task()
    data["tokens"] = torch.full((96, 6, 1), torch.nan)
    with pytest.raises(FloatingPointError, match="epoch 0, batch 0"):
        finetune(model, [data], rng=0)
