"""Make the environments the tests run in; does nothing where they are up to date.

`.venv` holds the newest AstrBot and the development tools, `.venv-<version>` one older AstrBot
each (`requirements-hosts.txt`). Runs on any Python from 3.8; AstrBot itself needs 3.12, which is
looked for among the interpreters that really start, else `uv` brings one.

    python3 tools/bootstrap.py           all of them
    python3 tools/bootstrap.py newest    `.venv` alone
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".venv-tools"
DEV_REQUIREMENTS = ROOT / "requirements-dev.txt"
HOST_REQUIREMENTS = ROOT / "requirements-hosts.txt"
OLDEST_PYTHON = (3, 12)
# Newer ones come last: not every dependency of an old AstrBot has a build for them yet.
USUAL_PYTHONS = ((3, 12), (3, 13))


def output(*command):
    """What a command prints, or None if it does not start or fails."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    return done.stdout.decode().strip() if done.returncode == 0 else None


def python_version(python):
    """The interpreter's version as two numbers; None if it does not start (a shim may not)."""
    code = "import sys; print(sys.version_info[0], sys.version_info[1])"
    numbers = output(str(python), "-c", code)
    return tuple(int(number) for number in numbers.split()) if numbers else None


def find_python():
    """An interpreter AstrBot runs on, as a path or name; None if there is none here."""
    on_path = ["python3.13", "python3.12", "python3", sys.executable]
    pyenv_root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    pyenv = sorted((pyenv_root / "versions").glob("3.1[2-9]*/bin/python"))
    found = [(python_version(name), str(name)) for name in [*on_path, *pyenv]]
    found = [(version, name) for version, name in found if version and version >= OLDEST_PYTHON]
    usual = [name for version, name in found if version in USUAL_PYTHONS]
    return (usual or [name for _, name in found] or [None])[0]


def find_uv():
    """The `uv` to install with: the one here, else one in a folder of its own."""
    for candidate in ("uv", str(TOOLS / "bin" / "uv")):
        if output(candidate, "--version"):
            return candidate
    print("installing uv", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(TOOLS)], check=True)
    subprocess.run([str(TOOLS / "bin" / "python"), "-m", "pip", "install", "-q", "uv"], check=True)
    return str(TOOLS / "bin" / "uv")


def download_python(uv):
    """Have `uv` bring an interpreter; its name for it."""
    if subprocess.run([uv, "python", "install", "3.12"]).returncode != 0:
        sys.exit("AstrBot needs Python 3.12 or newer: none found here, and none can be downloaded")
    return "3.12"


def lines_of(requirements):
    """The requirements of a file, without comments."""
    lines = (line.split("#")[0].strip() for line in requirements.read_text().splitlines())
    return [line for line in lines if line]


def environments():
    """Folder and requirements of every environment, the newest first."""
    yield ROOT / ".venv", lines_of(DEV_REQUIREMENTS)
    for line in lines_of(HOST_REQUIREMENTS):
        yield ROOT / (".venv-" + line.split("==")[1]), [line]


def stamp_text(requirements):
    """What an environment was made from; another text means it is made anew."""
    return hashlib.sha256("\n".join(sorted(requirements)).encode()).hexdigest()


def is_current(folder, requirements):
    """Whether the environment was made from these requirements, completely, and starts."""
    stamp = folder / "made-from"
    if not stamp.exists() or stamp.read_text() != stamp_text(requirements):
        return False
    return python_version(folder / "bin" / "python") is not None


def make(folder, requirements):
    """Make one environment from nothing; the stamp comes last."""
    uv = find_uv()
    python = find_python() or download_python(uv)
    print(f"making {folder.name} with {python}: {', '.join(requirements)}", flush=True)
    if folder.exists():
        shutil.rmtree(str(folder))
    env = dict(os.environ, UV_LINK_MODE="copy", UV_NO_PROGRESS="1")
    env.pop("VIRTUAL_ENV", None)
    subprocess.run([uv, "venv", "-q", "--python", python, str(folder)], check=True, env=env)
    install = [uv, "pip", "install", "-q", "--compile-bytecode"]
    install += ["--python", str(folder / "bin" / "python")]
    subprocess.run(install + requirements, check=True, env=env)
    (folder / "made-from").write_text(stamp_text(requirements))


def main(arguments):
    """Make what is asked for and not there."""
    for folder, requirements in environments():
        if arguments == ["newest"] and folder.name != ".venv":
            continue
        if not is_current(folder, requirements):
            make(folder, requirements)


if __name__ == "__main__":
    main(sys.argv[1:])
