"""The two images, built once for all tests here."""

from __future__ import annotations

import pytest

from tests.image.docker_command import built

IMAGE = "tool-use-api-emulator"
KERNEL_IMAGE = "tool-use-api-emulator-kernel"


@pytest.fixture(scope="session")
def image() -> str:
    return built(IMAGE)


@pytest.fixture(scope="session")
def kernel_image() -> str:
    return built(KERNEL_IMAGE, dockerfile="sandbox/Dockerfile")
