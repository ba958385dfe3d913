"""The table of tests that must fail is that of the page, and of the scikit-learn that runs."""

from __future__ import annotations

from ci.sklearn_tests.plugin import ERRORS


def test_the_table_and_the_test_files_are_right():
    assert not ERRORS, "\n".join(ERRORS)
