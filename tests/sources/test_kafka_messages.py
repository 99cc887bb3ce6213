"""Messages as records: each format, times, keys and null values."""

from __future__ import annotations

import bz2
import gzip
import zlib
from dataclasses import replace
from typing import Any, cast

import orjson
import pytest
from confluent_kafka import KafkaError, KafkaException

from skws.data.batch import BadRecord, Record
from skws.formats.dead_letters import place
from skws.sources.horizon import Horizon
from skws.sources.kafka.client import Client, Partition
from skws.sources.kafka.topic_address import Form, TopicAddress
from skws.sources.kafka.topic_reader import TopicReader, table_rows
from skws_schema.errors import SourceError
from skws_schema.model import AttributeType, iso
from skws_schema.yaml.load import parse_schema
from tests.sources.film_database import SCHEMA

NOW = 5_000_000
FILM = {"mid": 1, "title": "film", "gid": 2}
ROW = (1, "film", 2)
ENVELOPE = {"relation": "movie", "time": 3, "row": FILM}
ALL_BROKERS_DOWN = -187  # of librdkafka
CHANGE = {"op": "c", "before": None, "after": FILM, "source": {"table": "movie", "ts_ms": 4000}}


def read(
    value: Any, *, topic: str = "movie", form: Form = Form.AUTO, key: Any = None, time: int | None = NOW
) -> list[Any]:
    reader = TopicReader(topic, SCHEMA, form)
    payload = value if isinstance(value, bytes) or value is None else orjson.dumps(value)
    return reader.items(2, 41, key if key is None else orjson.dumps(key), payload, time)


def reason(items: list[Any]) -> str:
    (bad_record,) = items
    assert isinstance(bad_record, BadRecord)
    return bad_record.reason


@pytest.mark.parametrize("topic", ["movie", "server.public.movie", "everything"])
def test_the_fields_determine_the_form(topic: str) -> None:
    assert read(ENVELOPE, topic=topic) == [Record(1, 3_000_000, ROW)]
    assert read(CHANGE, topic=topic) == [Record(1, 4_000_000, ROW)]
    assert read({"schema": None, "payload": CHANGE}, topic=topic) == [Record(1, 4_000_000, ROW)]
    if topic == "everything":
        assert reason(read(FILM, topic=topic)) == "the record has no field 'relation'"
    else:
        assert read(FILM, topic=topic) == [Record(1, NOW, ROW)]


@pytest.mark.parametrize("form", [Form.AUTO, Form.ROWS])
def test_rows_may_have_the_envelope_of_kafka_connect(form: Form) -> None:
    row_schema = {"type": "struct", "fields": [], "optional": False}
    assert read({"schema": row_schema, "payload": FILM}, form=form) == [Record(1, NOW, ROW)]
    deletions = read({"schema": row_schema, "payload": None}, form=form, key={"mid": 1})
    assert deletions == ([Record(1, NOW, (1, None, None), True)] if form is Form.ROWS else [])
    assert reason(read({"schema": row_schema, "payload": 5}, form=form)) == (
        "expected a row (a JSON object) of movie, got 5"
    )


def test_a_utf_8_mark_is_ignored() -> None:
    assert read(b"\xef\xbb\xbf" + orjson.dumps(FILM)) == [Record(1, NOW, ROW)]


def test_the_time_of_a_message_replaces_a_missing_time() -> None:
    assert read({"relation": "movie", "row": FILM}) == [Record(1, NOW, ROW)]
    assert read({"relation": "movie", "op": "-", "row": {"mid": 1}}) == [
        Record(1, NOW, (1, None, None), True)
    ]
    assert read({**FILM, "time": "1970-01-01T00:00:09Z"}) == [Record(1, 9_000_000, ROW)]
    assert read({**CHANGE, "source": {"table": "movie"}}) == [Record(1, NOW, ROW)]
    assert "no time" in reason(read(FILM, time=None))


def test_an_attribute_takes_precedence_over_a_field_of_its_name() -> None:
    movie = replace(SCHEMA.relations[1], attributes=SCHEMA.relations[1].attributes[:2], key=())
    renamed = replace(movie, attributes=(*movie.attributes, replace(movie.attributes[1], name="payload")))
    schema = replace(SCHEMA, relations=(SCHEMA.relations[0], renamed, SCHEMA.relations[2]), joins=())
    value = orjson.dumps({"mid": 1, "title": "film", "payload": "heavy"})
    assert TopicReader("movie", schema, Form.AUTO).items(0, 0, None, value, NOW) == [
        Record(1, NOW, (1, "film", "heavy"))
    ]
    words = (replace(movie.attributes[1], name="schema"), replace(movie.attributes[1], name="payload"))
    renamed = replace(renamed, attributes=words, search=())
    schema = replace(schema, relations=(schema.relations[0], renamed, *schema.relations[2:]))
    value = orjson.dumps({"schema": "a", "payload": "heavy"})
    assert TopicReader("movie", schema, Form.AUTO).items(0, 0, None, value, NOW) == [
        Record(1, NOW, ("a", "heavy"))
    ]


def test_updates_and_deletions_of_debezium_are_read() -> None:
    update = {**CHANGE, "op": "u", "before": FILM, "after": {**FILM, "title": "new"}}
    assert read(update) == [Record(1, 4_000_000, ROW, True), Record(1, 4_000_000, (1, "new", 2))]
    delete = {**CHANGE, "op": "d", "before": None, "after": None}
    deletion = [Record(1, 4_000_000, (1, None, None), True)]
    assert read(delete, key={"mid": 1}) == deletion
    assert read(delete, key={"schema": {}, "payload": {"mid": 1}}) == deletion
    assert "no row `before`" in reason(read(delete))


def test_a_time_far_ahead_of_the_clock_is_rejected() -> None:
    """Otherwise all later records would be late."""
    clock_time = NOW
    reader = TopicReader("movie", SCHEMA, Form.AUTO, horizon=Horizon(10, lambda: clock_time))
    value = orjson.dumps(FILM)
    accepted, rejected = (reader.items(0, 0, None, value, NOW + ahead) for ahead in (10, 11))
    assert reader.refusal(accepted, 0, 0, None, value) is None
    bad_record = reader.refusal(rejected, 0, 1, None, value)
    assert bad_record is not None
    assert (bad_record.source, bad_record.offset, bad_record.raw) == ("movie[0]", 1, value)
    assert bad_record.reason.startswith(f"the time {iso(NOW + 11)} is more than ")
    clock_time += 1
    assert reader.refusal(rejected, 0, 2, None, value) is None


@pytest.mark.parametrize("value", [None, b"null"])
def test_null_values_delete_rows_or_are_reported(value: bytes | None) -> None:
    reader = TopicReader("movie", SCHEMA, Form.AUTO)
    assert reader.items(0, 0, b'{"mid": 1}', value, NOW) == []
    (notice,) = reader.notices()
    assert "with ?format=rows they delete the row of their key" in notice
    assert reader.notices() == ()
    assert read(value, topic="everything") == []
    for key in ({"mid": 1, "else": 2}, 1, {"payload": {"mid": 1}}):
        assert read(value, form=Form.ROWS, key=key) == [Record(1, NOW, (1, None, None), True)]
    assert "does not say which" in reason(read(value, form=Form.ROWS))
    assert "movie.mid is missing" in reason(read(value, form=Form.ROWS, key={"x": 1}))
    assert "sighting has no key" in reason(read(value, form=Form.ROWS, key=1, topic="sighting"))


def test_a_given_form_is_used() -> None:
    assert "no attribute 'relation'" in reason(read(ENVELOPE, form=Form.ROWS))
    assert reason(read(FILM, form=Form.RECORDS)) == "the record has no field 'relation'"
    assert "no source.table" in reason(read(FILM, form=Form.DEBEZIUM))
    with pytest.raises(SourceError, match="format=rows needs a topic named after a relation: genre, movie"):
        TopicReader("everything", SCHEMA, Form.ROWS)


def test_bad_messages_have_their_position() -> None:
    (bad_record,) = read(b"{nonsense")
    assert (bad_record.source, bad_record.offset, bad_record.raw) == ("movie[2]", 41, b"{nonsense")
    assert place(bad_record) == "movie[2] at offset 41"
    assert bad_record.reason.startswith("not JSON")
    assert reason(read([1])) == "expected a row (a JSON object) of movie, got [1]"
    assert "schema registry" in reason(read(b"\0\0\0\0\x07\x02\x08"))
    assert reason(read(b"")).startswith("not JSON")


def test_json_after_a_schema_id_is_read() -> None:
    assert read(b"\0\0\0\0\x07" + orjson.dumps(FILM)) == [Record(1, NOW, ROW)]


@pytest.mark.parametrize("micros", [1_790_000_000_000_000_000, 1_790_000_000_000_000_000_000])
def test_message_times_in_another_unit_are_reported(micros: int) -> None:
    """Milliseconds that are really microseconds or nanoseconds."""
    assert reason(read(FILM, time=micros)) == (
        f"the message's time {micros // 1000} is after the year 9999: expected milliseconds since the epoch"
        " (microseconds or nanoseconds?)"
    )
    assert "after the year 9999" in reason(read(None, form=Form.ROWS, key=1, time=micros))
    assert read(ENVELOPE, time=micros) == [Record(1, 3_000_000, ROW)]


@pytest.mark.parametrize("time", [None, 1_790_000_000_000_000_000])
def test_rows_of_static_tables_need_no_time(time: int | None) -> None:
    reader = TopicReader("movie", SCHEMA, Form.AUTO, timeless=True)
    assert reader.items(0, 0, None, orjson.dumps(FILM), time) == [Record(1, 0, ROW)]


@pytest.mark.parametrize("key", ["12e4", "1.10", "true", "null", "007", "[1]", "1e999", '"x"', "x"])
@pytest.mark.parametrize("kind", [AttributeType.TEXT, AttributeType.STRING])
def test_a_text_key_is_the_text_of_the_message(key: str, kind: AttributeType) -> None:
    movie = SCHEMA.relations[1]
    attributes = (replace(movie.attributes[0], type=kind), *movie.attributes[1:])
    schema = replace(
        SCHEMA,
        relations=(SCHEMA.relations[0], replace(movie, attributes=attributes), SCHEMA.relations[2]),
        joins=tuple(join for join in SCHEMA.joins if all("mid" not in pair for pair in join.on)),
    )
    reader = TopicReader("movie", schema, Form.ROWS)
    expected = "x" if key == '"x"' else key
    assert reader.items(0, 0, key.encode(), None, NOW) == [Record(1, NOW, (expected, None, None), True)]


@pytest.mark.parametrize("key", ["1.10", "true", "x"])
def test_an_impossible_key_is_a_bad_record(key: str) -> None:
    reader = TopicReader("movie", SCHEMA, Form.ROWS)
    assert "movie.mid" in reason(reader.items(0, 0, key.encode(), None, NOW))


def test_an_integer_key_may_have_an_exponent() -> None:
    items = TopicReader("movie", SCHEMA, Form.ROWS).items(0, 0, b"12e4", None, NOW)
    assert items == [Record(1, NOW, (120_000, None, None), True)]


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (
            gzip.compress(b"{}", mtime=0),
            "gzip",
        ),  # so the id of this case is the same in all workers of pytest-xdist
        (bz2.compress(b"{}"), "bzip2"),
        (zlib.compress(b"{}"), "zlib"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "Zstandard"),
    ],
)
def test_compressed_values_are_not_json(value: bytes, form: str) -> None:
    assert reason(read(value)).startswith(f"compressed with {form} by the sending program")


def test_tables_are_not_awaited_while_all_brokers_are_down() -> None:
    class Away:
        """A client whose brokers become unreachable before it fetches a message."""

        fetches = 0

        def offset_range(self, _: Partition) -> tuple[int, int]:
            return 0, 5

        def cached_end(self, _: Partition) -> int:
            return 5

        def assign(self, _: object) -> None:
            pass

        def fetch(self, *_: object) -> list[Any]:
            self.fetches += 1
            assert self.fetches < 10
            return []

        def errors(self) -> list[KafkaError]:
            return [KafkaError(ALL_BROKERS_DOWN)] if self.fetches > 2 else []

    address = TopicAddress.of("kafka://localhost/movie")
    with pytest.raises(KafkaException):
        list(table_rows(address, SCHEMA, cast("Client", Away()), {"movie": (("movie", 0),)}))


def test_a_message_is_not_read_as_a_file() -> None:
    assert reason(read('{"title": "é"}'.encode("latin-1"))) == (
        "not UTF-8: byte 0xE9 at column 12; let the producer send texts in UTF-8"
    )


SETTINGS = parse_schema("""
relations:
  setting: {attributes: {key: string, value: text}, key: [key]}
  renamed: {attributes: {k: {type: string, from: key}, v: {type: text, from: value}}, key: [k]}
""")


@pytest.mark.parametrize("relation", ["setting", "renamed"])
def test_rows_may_have_a_key_and_a_value(relation: str) -> None:
    number = SETTINGS.index[relation]
    for form in (Form.AUTO, Form.ROWS):
        reader = TopicReader(relation, SETTINGS, form)
        for extra in ({}, {"time": 5}, {"other": 1}):
            value = orjson.dumps({"key": "a", "value": "x"} | extra)
            assert reader.items(0, 0, b"a", value, NOW)[0] == Record(number, NOW, ("a", "x"))
    for key in (b"a", b'{"key": "a"}', b'{"schema": null, "payload": {"key": "a"}}'):
        assert reader.items(0, 0, key, None, NOW) == [Record(number, NOW, ("a", None), delete=True)]
