"""Claims of producers with both clients and a real broker."""

import pytest

from tests.support.processes import BrokerProcess
from tests.tweetwire.client.either_client import Opener
from tweetwire import Event, Refusal

pytestmark = pytest.mark.anyio


def event(sequence: int) -> Event:
    return Event(id=f"e{sequence}", msg=sequence, producer="p", sequence=sequence)


async def test_a_client_that_lost_its_claim_can_publish_checkpoint_and_skip_no_more(
    opened: Opener, shared_broker: BrokerProcess, topic: str
) -> None:
    async with opened(shared_broker.address, name="old") as old, opened(shared_broker.address, name="new") as new:
        epoch = await old.call("claim", topic, "p")
        await old.call("publish", topic, event(1), epoch=epoch)
        await old.call("checkpoint", topic, "p", "a", epoch=epoch)
        with pytest.raises(Refusal, match="fenced p is held by old"):
            await new.call("claim", topic, "p", only_free=True)
        assert await new.call("claim", topic, "p") == epoch + 1
        for method, *args in (("publish", topic, event(2)), ("checkpoint", topic, "p", "b"), ("skip", topic, "p", 9)):
            with pytest.raises(Refusal) as refused:
                await old.call(method, *args, epoch=epoch)
            assert refused.value.code == "fenced"
        with pytest.raises(Refusal, match="fenced"):
            await old.call("claim", topic, "p", epoch=epoch)
        await new.call("publish", topic, event(2), epoch=epoch + 1)
        await new.call("skip", topic, "p", 9, epoch=epoch + 1)
        position = await new.call("last", topic, "p")
        assert (position.sequence, position.checkpoint, position.epoch, position.holder) == (2, "a", epoch + 1, "new")


async def test_many_events_are_published_with_an_epoch(
    opened: Opener, shared_broker: BrokerProcess, topic: str
) -> None:
    async with opened(shared_broker.address) as client:
        epoch = await client.call("claim", topic, "p", only_free=True)
        await client.publish_many(topic, [event(n) for n in range(1, 1000)], epoch=epoch)
        with pytest.raises(Refusal, match="fenced"):
            await client.publish_many(topic, [event(n) for n in range(1000, 1010)])
        assert (await client.call("last", topic, "p")).sequence == 999


@pytest.mark.parametrize(
    ("method", "args", "options"),
    [
        ("claim", ("t", "p q"), {}),
        ("claim", ("t", "p"), {"epoch": 0}),
        ("claim", ("t", "p"), {"epoch": 1, "only_free": True}),
        ("checkpoint", ("t", "p", "c"), {"epoch": -1}),
        ("publish", ("t", event(1)), {"epoch": 1, "qos": 2}),
        ("publish", ("t", event(1)), {"epoch": "1 x"}),
    ],
)
async def test_wrong_arguments_are_a_value_error(
    opened: Opener, shared_broker: BrokerProcess, method: str, args: tuple[object, ...], options: dict[str, object]
) -> None:
    async with opened(shared_broker.address) as client:
        with pytest.raises(ValueError, match=r".+"):
            await client.call(method, *args, **options)
