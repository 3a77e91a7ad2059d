"""Ensembles: the same bits on every executor, failures that stop nothing else, work that is interrupted and continued."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import numba
import numpy as np
import pytest
import torch

import particles
from particles import (
    Alignment,
    Ball,
    CentredAlignment,
    DivergenceError,
    EnsembleError,
    FullSpace,
    Langevin,
    Quadratic,
    QuadraticTarget,
    Riesz,
    open_trajectory,
    run_ensemble,
    simulate,
)

DISC = Ball(1.5, 2)
X = np.random.default_rng(0).normal(size=(30, 2))
LABELS = X[:, 0] * X[:, 1] > 0
ENERGY = Alignment(X, LABELS, "fourier", batch_size=10) + Riesz(0.5, 0.3)
TORCH_RUN = {"omega": 0.3 * X[:8], "energy": Quadratic(1.0) + Riesz(1, 0.2), "domain": DISC, "sampler": Langevin(0.01, 3.0), "n_steps": 6}


def configs(n=3, **changes):
    base = {"energy": ENERGY, "domain": DISC, "sampler": Langevin(0.01, 5.0), "n_steps": 8, "save_every": 2}
    return [base | {"omega": 0.5 * DISC.sample(6, seed), "rng": seed} | changes for seed in range(n)]


class Serial(Executor):
    """Another library's executor: nothing but `submit`."""

    def submit(self, function, /, *args, **kwargs):
        future = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


def assert_same(runs, expected):
    assert len(runs) == len(expected)
    for run, other in zip(runs, expected):
        assert run.drop_attrs(deep=False).equals(other.drop_attrs(deep=False))
        assert {k: v for k, v in run.attrs.items() if k != "created"} == {k: v for k, v in other.attrs.items() if k != "created"}


def mixed_runs():
    """NumPy and torch, float32, chains, a minibatch."""
    tensor = torch.tensor(TORCH_RUN["omega"], dtype=torch.float32)
    chains = np.stack([TORCH_RUN["omega"], -TORCH_RUN["omega"]])
    return [*configs(2), TORCH_RUN | {"omega": tensor, "rng": 7}, TORCH_RUN | {"omega": chains, "rng": 8}]


@pytest.fixture(scope="module")
def serial():
    return [simulate(**config) for config in mixed_runs()]


def test_threads_and_a_plain_executor_give_the_bits_of_simulate(serial):
    assert_same(run_ensemble(mixed_runs(), executor=Serial()), serial)
    with ThreadPoolExecutor(3) as pool:
        assert_same(run_ensemble(mixed_runs(), executor=pool), serial)
        assert pool.submit(int, "1").result() == 1, "the user's executor was closed"


@pytest.mark.slow
def test_processes_give_the_bits_of_simulate(serial, processes):
    assert_same(run_ensemble(mixed_runs(), executor=processes), serial)


def test_dask_threads_give_the_bits_of_simulate(serial):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert_same(run_ensemble(mixed_runs(), executor=client), serial)
        assert client.status == "running", "the user's client was closed"
        jobs = configs(2, callback=lambda step, frame: step == 4)  # Dask sends functions by value
        assert [run.sizes["step"] for run in run_ensemble(jobs, executor=client)] == [3, 3]


@pytest.mark.slow
def test_dask_processes_and_a_scheduler_address_give_the_bits_of_simulate(serial, tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        assert_same(run_ensemble(mixed_runs(), executor=cluster.scheduler_address), serial)
        jobs = [job | {"store": tmp_path / str(i)} for i, job in enumerate(mixed_runs())]
        assert_same(run_ensemble(jobs, executor=cluster.scheduler_address), serial)


def test_own_processes_store_and_continue(tmp_path):
    """The default executor: stores are opened lazily, a second call continues what stopped early and keeps what is complete."""
    jobs = [job | {"store": str(tmp_path / str(i))} for i, job in enumerate(configs(2))]
    simulate(**jobs[0] | {"callback": lambda step, frame: step == 4})  # stopped half-way
    simulate(**jobs[1])
    before = os.stat(tmp_path / "1" / "zarr.json").st_mtime_ns
    runs = run_ensemble(jobs[:1])  # one process: starting it is all that takes time here
    assert_same([run.load() for run in runs], [simulate(**configs(1)[0])])
    runs = run_ensemble(jobs, executor=Serial())
    assert_same([run.load() for run in runs], [simulate(**job) for job in configs(2)])
    assert os.stat(tmp_path / "1" / "zarr.json").st_mtime_ns == before


def test_finished_stores_are_opened_without_a_worker(tmp_path, monkeypatch):
    """On no executor is anything submitted, a store of another model is refused all the same, and what is unfinished is sent."""
    jobs = [job | {"store": tmp_path / str(i)} for i, job in enumerate(configs(2))]
    expected = [simulate(**job) for job in jobs]
    sent = []
    monkeypatch.setattr(Serial, "submit", lambda self, *args: sent.append(args))
    monkeypatch.setattr(ProcessPoolExecutor, "submit", lambda self, *args: sent.append(args))
    for executor in (Serial(), None):
        assert_same([run.load() for run in run_ensemble(jobs, executor=executor)], expected)
        with pytest.raises(EnsembleError, match=r"1 of 2 runs failed; configs\[1\]: ValueError: sampler must be the stored one"):
            run_ensemble([jobs[0], jobs[1] | {"sampler": Langevin(0.02, 5.0)}], executor=executor)
    assert not sent
    monkeypatch.undo()
    monkeypatch.setattr(Serial, "submit", lambda self, f, *args, submit=Serial.submit: sent.append(args) or submit(self, f, *args))
    longer = run_ensemble([jobs[0], jobs[1] | {"n_steps": 10}], executor=Serial())
    assert [run.sizes["step"] for run in longer] == [5, 6]
    assert [job[0]["n_steps"] for job in sent] == [10]


UNGUARDED = """
from particles import *
run_ensemble([dict(omega=[[0.0]], energy=Quadratic(1.0), domain=FullSpace(1), sampler=Langevin(0.1, 1.0), n_steps=1, rng=0)])
"""


@pytest.mark.slow
def test_a_script_without_a_main_guard_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 1
    assert "RuntimeError: new processes import the script" in run.stderr  # in the new process
    assert run.stderr.strip().endswith("which must call run_ensemble under `if __name__ == '__main__':` only.")


def test_an_ensemble_in_a_process_that_imports_its_script_is_refused(monkeypatch):
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(RuntimeError, match="must call run_ensemble under `if __name__"):
        run_ensemble(configs(1))


def test_a_generator_gives_every_config_its_seed_in_order():
    rng = np.random.default_rng(5)
    runs = run_ensemble(configs(3, rng=rng), executor=Serial())
    rng = np.random.default_rng(5)
    assert [run.attrs["seed"] for run in runs] == [str(particles.key_from(rng)) for _ in range(3)]
    assert len({float(run.omega[0, -1, 0, 0]) for run in runs}) == 3


def test_a_failing_member_stops_no_other(tmp_path):
    jobs = [job | {"store": tmp_path / str(i)} for i, job in enumerate(configs(4))]
    jobs[1] |= {"energy": Quadratic(1.0), "domain": FullSpace(2), "sampler": Langevin(1e200, 1.0)}
    jobs[2] |= {"n_steps": 7}
    with ThreadPoolExecutor(2) as pool, pytest.raises(EnsembleError, match=r"2 of 4 runs failed; configs\[1\]: DivergenceError") as caught:
        run_ensemble(jobs, executor=pool)
    failed = caught.value
    assert {i: type(error) for i, error in failed.exceptions.items()} == {1: DivergenceError, 2: ValueError}
    assert [data is None for data in failed.datasets] == [False, True, True, False]
    assert_same([failed.datasets[3].load()], [simulate(**configs(4)[3])])
    assert open_trajectory(tmp_path / "1").sizes["step"] >= 1


def test_an_exception_that_cannot_be_sent_does_not_break_the_others():
    class Local(Exception):
        """No other process knows it."""

    def fail(step, frame):
        raise Local("went wrong")

    with pytest.raises(EnsembleError, match=r"configs\[0\]: RuntimeError: Local: went wrong") as caught:
        run_ensemble(configs(1, callback=fail), executor=Serial())
    pickle.loads(pickle.dumps(caught.value))


def test_members_compute_on_one_thread_and_leave_the_callers_alone(processes):
    before, seen = numba.get_num_threads(), []
    with ThreadPoolExecutor(2) as pool:
        run_ensemble(configs(3, callback=lambda step, frame: seen.append(numba.get_num_threads())), executor=pool)
    assert set(seen) == {1}
    assert numba.get_num_threads() == before


THREADS = """
import threading
import torch
from threadpoolctl import threadpool_info
from particles._one_thread import one_thread

def counts():
    return torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")

def member():
    with one_thread:
        seen.append(counts())

seen, before = [], counts()
for _ in range(2):
    member()
    for runner in [threading.Thread(target=member) for _ in range(2)]:
        runner.start()
        runner.join()
print({n for count in seen for n in count}, set(before), set(counts()))
"""


def test_every_thread_limits_blas_and_torch_and_gives_them_back():
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "2")
    found = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.split() == ["{1}", "{2}", "{2}"]


POOL = """
import torch
import numba, numpy as np
from particles._one_thread import one_thread

@numba.njit(parallel=True)
def total(x):
    found = 0.0
    for i in numba.prange(x.size):
        found += x[i]
    return found

torch.set_num_threads(1)
torch.get_num_threads()  # begins what is begun late
if CONTROL:
    total(np.ones(99))
    print(torch.get_num_threads())
with one_thread:
    total(np.ones(99))
    inside = torch.get_num_threads()
print(inside, torch.get_num_threads())
"""


@pytest.mark.parametrize("control", [False, True])
def test_the_start_of_numbas_threads_leaves_torch_on_one(control):
    """numba's pool sets the threads of the OpenMP that it shares with torch when it starts, be that in the first parallel kernel."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2", "NUMBA_THREADING_LAYER": "omp"}
    script = POOL.replace("CONTROL", str(control))
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    if "No threading layer" in found.stderr:
        pytest.skip("numba has no OpenMP here")
    assert found.returncode == 0, found.stderr
    first, *rest = found.stdout.split("\n")[:2]
    if not control:
        assert first == "1 1"
    elif first == "1":
        pytest.skip("numba and torch do not share an OpenMP here")
    else:
        assert rest == [f"1 {first}"]  # whoever set it: inside one thread, given back after


def test_an_interrupt_cancels_what_has_not_begun(tmp_path):
    def interrupt(step, frame):
        raise KeyboardInterrupt

    jobs = [job | {"store": tmp_path / str(i), "callback": lambda step, frame: time.sleep(0.1)} for i, job in enumerate(configs(6))]
    jobs[0]["callback"] = interrupt
    with ThreadPoolExecutor(1) as pool, pytest.raises(KeyboardInterrupt):
        run_ensemble(jobs, executor=pool)
    assert (tmp_path / "0").exists()
    assert not (tmp_path / "5").exists()


INTERRUPTED = """
import signal, sys
from pathlib import Path
from particles import *
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore it
    disc, n_steps = Ball(1.0, 2), int(sys.argv[2])
    run_ensemble([dict(omega=disc.sample(64, s), energy=Riesz(0, 1.0), domain=disc, sampler=Langevin(0.01, 5.0), n_steps=n_steps,
                       save_every=10, rng=s, store=Path(sys.argv[1]) / str(s)) for s in range(8)])
"""


def is_alive(group):
    """Whether a process of this group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_control_c_ends_own_processes_and_leaves_stores_that_continue(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    run = subprocess.Popen([sys.executable, script, tmp_path, "100000000"], stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "0").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    run.send_signal(signal.SIGINT)  # to the parent alone, which is harder than a terminal's
    _, errors = run.communicate(timeout=30)
    assert b"KeyboardInterrupt" in errors
    deadline = time.monotonic() + 20
    while is_alive(run.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not is_alive(run.pid)
    assert not (tmp_path / "7").exists()
    assert open_trajectory(tmp_path / "0").sizes["step"] >= 1


def test_progress_bar_counts_runs_and_changes_nothing(serial, capsys):
    assert_same(run_ensemble(mixed_runs(), executor=Serial(), progress=True), serial)
    assert "4/4" in capsys.readouterr().err


def test_no_configs_no_runs():
    assert run_ensemble([]) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda jobs: 3, "configs must be a sequence of dicts, got 3"),
        (lambda jobs: jobs[0], "configs must be a sequence of dicts, got one dict: put it in a list$"),
        (lambda jobs: [jobs[0], "one"], r"configs\[1\] must be a dict of simulate's arguments, got 'one'"),
        (lambda jobs: [jobs[0], jobs[1] | {"steps": 3}], r"configs\[1\].*unknown \['steps'\], missing \[\]"),
        (lambda jobs: [{k: v for k, v in jobs[0].items() if k not in ("rng", "energy")}], r"configs\[0\].*missing \['energy', 'rng'\]"),
        (lambda jobs: [jobs[0], jobs[1] | {"rng": None}], r"configs\[1\]: rng must be"),
        (lambda jobs: [jobs[0], jobs[1] | {"store": 3}], r"configs\[1\]: store must be a path, got 3"),
        (lambda jobs: [job | {"store": "same"} for job in jobs], r"configs\[1\]: store must be its own, but configs\[0\] has"),
        (lambda jobs: [jobs[0] | {"store": "a/../b"}, jobs[1] | {"store": "b"}], r"configs\[1\]: store must be its own"),
    ],
)
def test_bad_configs_are_named_before_any_work(change, words, tmp_path):
    started = []
    jobs = configs(3, callback=lambda step, frame: started.append(step))
    with pytest.raises(ValueError, match=words):
        run_ensemble(change(jobs), executor=Serial())
    assert not started


def test_what_cannot_be_sent_is_named_before_any_work(processes, tmp_path):
    jobs = configs(2)
    jobs[1] |= {"callback": lambda step, frame: None, "store": tmp_path / "1"}
    for executor in (processes, None):
        with pytest.raises(ValueError, match=r"configs\[1\]: callback must be picklable"):
            run_ensemble(jobs, executor=executor)
    assert not (tmp_path / "1").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rng": 9}, "rng must be 0, as in the store"),
        ({"save_every": 4}, "save_every must be 2, as in the store"),
        ({"first_chain": 2}, "first_chain must be 0, as in the store"),
        ({"omega": np.zeros((6, 2))}, "omega must be the start of the run"),
        ({"omega": np.full((6, 2), np.nan)}, "omega must be finite"),
        ({"omega": torch.tensor(configs(1)[0]["omega"])}, "omega must be the start of the run"),
    ],
)
def test_a_store_of_another_run_is_refused(tmp_path, change, words):
    job = configs(1)[0] | {"store": tmp_path / "run"}
    simulate(**job)
    with pytest.raises(ValueError, match=rf"configs\[1\]: {words}"):
        run_ensemble([configs(1)[0], job | change], executor=Serial())


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_executors_that_fork_or_are_none_are_refused():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool, pytest.raises(ValueError, match="must not fork"):
        run_ensemble(configs(1), executor=pool)
    with pytest.raises(ValueError, match=r"executor must be None, a concurrent.futures.Executor, a dask Client or its address, got 4"):
        run_ensemble(configs(1), executor=4)


def test_everything_that_a_run_needs_pickles_after_use():
    """Energies hold data and caches; what comes back is the same energy."""
    omega = 0.5 * DISC.sample(6, 0)
    target = np.sign(np.outer(LABELS - 0.5, LABELS - 0.5))
    kinds = (Alignment(X, LABELS, "fourier"), QuadraticTarget(X, target, "softmax"), CentredAlignment(X, LABELS, "fourier"), Riesz(1, 0.1))
    for energy in (*kinds, kinds[0] + kinds[-1]):
        value = energy.value(omega)
        copy = pickle.loads(pickle.dumps(energy))
        assert copy.describe() == energy.describe()
        assert copy.value(omega) == value
    failed = EnsembleError({1: ValueError("no")}, [None, None])
    assert str(pickle.loads(pickle.dumps(failed))) == str(failed) == "1 of 2 runs failed; configs[1]: ValueError: no"
