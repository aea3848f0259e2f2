"""Three clients that share no code, over every protocol: let in, and kept out."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError as AiokafkaConnectionError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError as KafkaPythonError

WAIT = 120.0
RECORDS = [b"%d" % n for n in range(300)]
SASL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

# (listener, mechanism or None)
DOORS = [
    ("PLAIN", None),
    ("TLS", None),
    ("MUTUAL", None),
    *(("SASL", mechanism) for mechanism in SASL),
    *(("BOTH", mechanism) for mechanism in SASL),
]


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


class Way:
    """One way in: settings for each client."""

    def __init__(
        self, broker: Any, ca: Path, pem: Path, door: str, mechanism: str | None, password: str
    ) -> None:
        self.bootstrap = broker.at(door)
        self.protocol = {
            "PLAIN": "PLAINTEXT",
            "TLS": "SSL",
            "MUTUAL": "SSL",
            "SASL": "SASL_PLAINTEXT",
            "BOTH": "SASL_SSL",
        }[door]
        self.mechanism = mechanism
        self.password = password
        self.has_tls = "SSL" in self.protocol
        self.ca = ca
        self.pem = pem if door == "MUTUAL" else None

    def confluent(self, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
            "socket.timeout.ms": 10_000,
            "message.timeout.ms" if "group.id" not in more else "session.timeout.ms": 15_000,
        }
        if self.has_tls:
            found |= {"ssl.ca.location": str(self.ca)}
        if self.pem is not None:
            found |= {"ssl.certificate.location": str(self.pem), "ssl.key.location": str(self.pem)}
        if self.mechanism is not None:
            found |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": "alice",
                "sasl.password": self.password,
            }
        return found | more

    def python(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": self.protocol,
        }
        if self.has_tls:
            found |= {"ssl_cafile": str(self.ca), "ssl_check_hostname": True}
        if self.pem is not None:
            found |= {"ssl_certfile": str(self.pem), "ssl_keyfile": str(self.pem)}
        if self.mechanism is not None:
            found |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": "alice",
                "sasl_plain_password": self.password,
            }
        return found

    def aio(self) -> dict[str, Any]:
        found = self.python()
        for name in ("ssl_cafile", "ssl_check_hostname", "ssl_certfile", "ssl_keyfile"):
            found.pop(name, None)
        if self.has_tls:
            context = ssl.create_default_context(cafile=str(self.ca))
            if self.pem is not None:
                context.load_cert_chain(self.pem)
            found["ssl_context"] = context
        return found


@pytest.fixture(params=DOORS, ids=lambda door: f"{door[0]}-{door[1]}" if door[1] else door[0])
def way(request: Any, secure: Any, authority: Any, alice_pem: Path) -> Way:
    door, mechanism = request.param
    return Way(secure, authority.path, alice_pem, door, mechanism, "alice-secret")


def test_confluent_kafka(way: Way, topic: str) -> None:
    producer = Producer(way.confluent())
    errors: list[Any] = []
    for value in RECORDS:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT) == 0
    assert errors == [None] * len(RECORDS)
    consumer = Consumer(
        way.confluent(**{"group.id": f"g-{topic}", "auto.offset.reset": "earliest"})
    )
    consumer.subscribe([topic])
    values: list[Any] = []
    while len(values) < len(RECORDS):
        message = consumer.poll(WAIT)
        assert message is not None and message.error() is None, message and message.error()
        values.append(message.value())
    assert values == RECORDS
    consumer.commit(asynchronous=False)
    consumer.close()


def test_kafka_python(way: Way, topic: str) -> None:
    producer = KafkaProducer(**way.python())
    sent = [producer.send(topic, value) for value in RECORDS]
    assert [each.get(WAIT).offset for each in sent] == list(range(len(RECORDS)))
    producer.close()
    consumer = KafkaConsumer(
        **way.python(), auto_offset_reset="earliest", consumer_timeout_ms=int(WAIT * 1000)
    )
    consumer.assign([TopicPartition(topic, 0)])
    values = []
    for message in consumer:
        values.append(message.value)
        if len(values) == len(RECORDS):
            break
    assert values == RECORDS
    consumer.close()


async def test_aiokafka(way: Way, topic: str) -> None:
    producer = AIOKafkaProducer(**way.aio())
    await producer.start()
    try:
        await asyncio.gather(*[await producer.send(topic, value) for value in RECORDS])
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(
        topic, **way.aio(), group_id=f"g-{topic}", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        values = [
            (await asyncio.wait_for(consumer.getone(), WAIT)).value for _ in range(len(RECORDS))
        ]
    finally:
        await consumer.stop()
    assert values == RECORDS


def test_large_records_over_tls(secure: Any, authority: Any, alice_pem: Path, topic: str) -> None:
    """Answers of many megabytes, in pieces, as fast as the client reads; and all of them right."""
    way = Way(secure, authority.path, alice_pem, "TLS", None, "")
    producer = Producer(way.confluent(**{"linger.ms": 20}))
    values = [bytes([n]) * 500_000 for n in range(64)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(WAIT) == 0
    for most in (64 << 20, 1 << 20):
        consumer = Consumer(
            way.confluent(
                **{
                    "group.id": f"{topic}-{most}",
                    "auto.offset.reset": "earliest",
                    "max.partition.fetch.bytes": most,
                    "fetch.max.bytes": most,
                    "message.max.bytes": min(most, 50 << 20) - 512,
                }
            )
        )
        consumer.subscribe([topic])
        for value in values:
            message = consumer.poll(WAIT)
            assert message is not None and message.error() is None
            assert message.value() == value
        consumer.close()


# -- kept out -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", SASL)
def test_a_wrong_password(
    secure: Any, authority: Any, alice_pem: Path, mechanism: str, topic: str
) -> None:
    way = Way(secure, authority.path, alice_pem, "BOTH", mechanism, "not-her-secret")
    errors: list[KafkaError] = []
    producer = Producer(way.confluent(error_cb=errors.append))
    with pytest.raises(KafkaException):
        AdminClient(way.confluent()).list_topics(timeout=3)
    producer.poll(2)
    assert KafkaError._AUTHENTICATION in [error.code() for error in errors]
    with pytest.raises(KafkaPythonError):
        KafkaProducer(**way.python(), bootstrap_timeout_ms=3_000)

    async def aio() -> None:
        client = AIOKafkaProducer(**way.aio())
        try:
            with pytest.raises(AiokafkaConnectionError):
                await client.start()
        finally:
            await client.stop()

    asyncio.run(aio())


def test_no_certificate_or_a_strange_one(
    secure: Any, authority: Any, stranger: Any, alice_pem: Path
) -> None:
    for pem in (None, stranger.issue("eve.pem", "alice")):
        way = Way(secure, authority.path, alice_pem, "MUTUAL", None, "")
        way.pem = pem
        with pytest.raises(KafkaException):
            AdminClient(way.confluent()).list_topics(timeout=3)
    way = Way(secure, stranger.path, alice_pem, "TLS", None, "")
    with pytest.raises(KafkaException):  # and its credentials serve no other user
        AdminClient(way.confluent()).list_topics(timeout=3)


def test_listeners_advertise_their_own_address(
    secure: Any, authority: Any, alice_pem: Path
) -> None:
    """Pitfall 47: metadata carries the address of the listener that was asked, and no other."""
    for door, mechanism in DOORS:
        way = Way(secure, authority.path, alice_pem, door, mechanism, "alice-secret")
        brokers = AdminClient(way.confluent()).list_topics(timeout=WAIT).brokers
        assert {f"{b.host}:{b.port}" for b in brokers.values()} == {secure.at(door)}
