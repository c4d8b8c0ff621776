"""The pages that a newcomer follows word by word print what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.page_outputs import FOLLOWED
from tests.support.pages import Reader, describe
from tests.support.project import REPOSITORY


@pytest.mark.parametrize("page", FOLLOWED)
def test_a_page_that_is_followed_word_by_word(tmp_path: Path, page: str) -> None:
    reader = Reader(tmp_path)
    reader.follow(REPOSITORY / page)
    assert not reader.different, describe(reader.different)
