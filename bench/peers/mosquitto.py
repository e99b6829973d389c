"""The peer mosquitto: MQTT at QoS 2, persistent sessions."""

import threading
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from bench.peers.peer import Consumed, PeerBroker, PeerTask, server

__all__ = ["MOSQUITTO"]

_IN_FLIGHT = 1000
_EXACTLY_ONCE = 2


def _start(home: Path, port: int) -> Iterator[None]:
    config = home / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\n"
        f"persistence true\npersistence_location {home}/\nautosave_interval 1\n"
        f"max_inflight_messages {_IN_FLIGHT}\nmax_queued_messages 0\n"
    )
    with server(home / "log", port, "mosquitto", "-c", config):
        yield


def _client(name: str) -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
    client.max_inflight_messages_set(_IN_FLIGHT)
    client.max_queued_messages_set(0)
    return client


def _prepare(task: PeerTask) -> None:
    """Create the consumer's session, so that the broker keeps messages published before the consumer connects."""
    subscribed = threading.Event()
    client = _client("reader")
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect("127.0.0.1", task.port)
    client.loop_start()
    client.subscribe("bench", _EXACTLY_ONCE)
    if not subscribed.wait(10):
        raise RuntimeError("mosquitto did not confirm the subscription")
    client.disconnect()
    client.loop_stop()


def _publish(task: PeerTask) -> None:
    client = _client("writer")
    client.connect("127.0.0.1", task.port)
    client.loop_start()
    last = None
    for _ in range(task.events):
        last = client.publish("bench", task.body, _EXACTLY_ONCE)
    if last is not None:
        last.wait_for_publish()
    client.disconnect()
    client.loop_stop()


def _consume(task: PeerTask) -> float:
    consumed = Consumed(task.events)
    client = _client("reader")

    def note(*_: object) -> None:
        if consumed.note(1):
            client.disconnect()

    client.on_message = note
    client.connect("127.0.0.1", task.port)
    client.loop_forever()
    return consumed.rate()


MOSQUITTO = PeerBroker(
    "mosquitto QoS 2", "mosquitto", "in memory (saved every second)", _start, _prepare, _publish, _consume
)
