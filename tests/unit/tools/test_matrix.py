"""`make matrix` is not part of `make test`: what it names must follow when a test moves or a range changes."""

from __future__ import annotations

import tomllib

import pytest
from packaging.requirements import Requirement

from tools import matrix


@pytest.mark.parametrize("path", matrix.CHOSEN)
def test_a_chosen_test_exists(path):
    assert (matrix.REPO_ROOT / path).exists()


def test_the_oldest_versions_are_the_lower_ends_of_the_ranges():
    project = tomllib.loads((matrix.REPO_ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    ranges = [Requirement(line) for line in (*project["dependencies"], *extras["kafka"], *extras["airflow"])]
    oldest = dict(line.split("==") for line in matrix.list_wanted("oldest"))
    assert [str(one) for one in ranges if one.name not in oldest] == []
    assert [str(one) for one in ranges if not one.specifier.contains(oldest[one.name])] == []
