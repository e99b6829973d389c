"""A hostile client does not end the process, delay other clients for long, or make memory grow without limit.

These tests run short attacks; ``python -m tests.hostile`` runs the complete attacks.
"""

import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.hostile.attacks import ATTACKS, Attack
from tests.hostile.target import Kind, Target, broker_target, ingester_target, measured

pytestmark = [pytest.mark.stack]

SIZE = 0.02
WORST_PING_MS = 1000.0  # the machine may be busy
RESIDENT_MAX = 300 << 20


@pytest.fixture(scope="module")
def target_of(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[[Kind], Target]]:
    """Start one target of each kind, on first use."""
    found: dict[Kind, Target] = {}
    with ExitStack() as stack:

        def start(kind: Kind) -> Target:
            if kind not in found or not found[kind].is_running:
                folder = tmp_path_factory.mktemp(kind)
                if kind == "ingester":
                    found[kind] = stack.enter_context(ingester_target(folder, request.getfixturevalue("mongo_url")))
                else:
                    found[kind] = stack.enter_context(broker_target(kind, folder))
            return found[kind]

        yield start


@pytest.fixture(scope="module", autouse=True)
def many_open_files() -> None:
    """Raise the limit of descriptors, since an attack opens many connections."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name.replace(" ", "-"))
def test_the_process_lives_and_others_are_answered(attack: Attack, target_of: Callable[[Kind], Target]) -> None:
    target = target_of(attack.kind)
    found = measured(target, lambda attacked: attack.run(attacked, SIZE))
    assert found.done > 0
    assert found.during.worst_ms < WORST_PING_MS
    assert found.peak_bytes < RESIDENT_MAX
