"""End-to-end: a real AstrBot process, real HTTP, a scripted model."""

import pytest

pytest.register_assert_rewrite("tests.e2e.histories")
