"""JupyterLab on this machine and a headless Chromium that looks at it. Collected only when asked for: `pytest tests/browser`.

Options: --output FOLDER keeps the screenshots there. The browser is that of the environment variable CHROMIUM, or chromium, google-chrome
or chrome on the path.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_addoption(parser):
    parser.addoption("--output", default=None, help="folder for the screenshots of the browser tests")


def pytest_ignore_collect(collection_path, config):
    """Leave the browser out unless this folder, or a file in it, was named."""
    named = [Path(argument.split("::")[0]).resolve() for argument in config.args]
    return None if any(path == HERE or HERE in path.parents for path in named) else True


@pytest.fixture(scope="session")
def output(request, tmp_path_factory):
    folder = Path(request.config.getoption("--output") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def chromium():
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    if not found:
        pytest.fail("no Chromium on the path: install one, or name its file in the environment variable CHROMIUM")
    return found


@pytest.fixture(scope="session")
def browser(chromium, tmp_path_factory):
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=chromium,
            headless=True,
            args=FLAGS,
            viewport={"width": 1300, "height": 1000},
        )
        yield context
        context.close()


class Lab:
    """A JupyterLab server whose notebooks lie in `folder`."""

    def __init__(self, folder: Path):
        self.folder, self.port = folder, _free_port()
        quiet = folder / ".settings" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
        quiet.parent.mkdir(parents=True)
        quiet.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
        names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
        own = {name: str(folder / ".jupyter" / name) for name in names} | {"JUPYTERLAB_SETTINGS_DIR": str(folder / ".settings")}
        arguments = [
            "--no-browser", "--allow-root", f"--port={self.port}", f"--ServerApp.root_dir={folder}", "--IdentityProvider.token=",
            "--ServerApp.password=", "--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly",
        ]  # fmt: skip
        with (folder / "lab.log").open("w") as log:
            command = [sys.executable, "-m", "jupyterlab", *arguments]
            self.process = subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log)

    def wait(self) -> None:
        for _ in range(120):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api", timeout=5)
                return
            except OSError:
                time.sleep(0.5)
        raise RuntimeError((self.folder / "lab.log").read_text())

    def notebook(self, name: str, *cells: str) -> str:
        """Write a notebook of code cells and return its address."""
        import nbformat

        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(book, self.folder / f"{name}.ipynb")
        return f"http://127.0.0.1:{self.port}/lab/workspaces/{name}/tree/{name}.ipynb?reset"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    server = Lab(tmp_path_factory.mktemp("lab"))
    try:
        server.wait()
        yield server
    finally:
        server.process.terminate()
        server.process.wait(timeout=30)


@pytest.fixture
def page(browser):
    """A new page that remembers what went wrong in it, `page.problems`."""
    tab = browser.new_page()
    tab.problems = []
    tab.on("console", lambda message: tab.problems.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: tab.problems.append(str(error)))
    yield tab
    tab.close()
