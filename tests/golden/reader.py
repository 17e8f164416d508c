"""Reader of the format, from docs/reference/format.md alone: it imports nothing of Shardline.

It is slow and keeps every snapshot's list. All that an entry claims is worked out again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.ipc

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Json = dict[str, Any]
COMPRESSIONS = ("none", "gzip", "zlib")
BACK = ("reject", "restore")
RESERVED = ("rejection", "vacuum")
KNOWN = {
    *("format", "dataset", "version", "number", "id", "previous", "digest", "time", "by"),
    *("operation", "fingerprint", "snapshot", "published", "totals", "content", "schema"),
    *("checks", "added", "removed", "sources", "attestations", "rejects", "restores", "tag"),
    *("pin", "condemned", "parameters", "inputs", "features", "sidecars"),
}


def canonical(value: object) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fingerprint_of(schema: Json) -> str:
    features = []
    for feature in schema["features"]:
        told = {name: value for name, value in feature.items() if name != "doc"}
        meaning = told.get("meaning", {})
        if told["kind"] == "bytes" and meaning.get("is") == "category" and "labels" in meaning:
            told["meaning"] = {**meaning, "labels": sorted(meaning["labels"])}
        features.append(told)
    return sha256(canonical({"features": features, "payload": schema["payload"]}))


@dataclass(eq=False)
class Landing:
    """A shard since it last came in, with the latest word of each check."""

    shard: Json
    entry: int
    words: dict[str, bool] = field(default_factory=dict)


@dataclass(eq=False)
class Moment:
    """A snapshot."""

    entry: int
    shards: list[Landing]
    content: str
    rejected: int = 0
    words: dict[str, bool] = field(default_factory=dict)

    @property
    def totals(self) -> Json:
        shards = [landing.shard for landing in self.shards]
        sums = {name: sum(shard[name] for shard in shards) for name in ("records", "bytes")}
        return {**sums, "shards": len(shards)}


def place_of(source: Json) -> str:
    """Return the digest of a source's path; of a batch, its key."""
    path = source.get("path")
    return sha256(canonical(source)) if path is None else sha256(path.encode())


class Reader:
    """A version as its entries tell it."""

    def __init__(self, dataset: str, version: str) -> None:
        self.place = {"dataset": dataset, "version": version}
        self.number = 0
        self.digest: str | None = None
        self.time = ""
        self.schema: Json | None = None
        self.policies: list[tuple[int, Json]] = []
        self.moments: list[Moment] = []
        self.landings: dict[str, list[Landing]] = {}
        self.sources: dict[str, int] = {}
        self.open_sources: dict[str, int] = {}
        self.shard_names: dict[str, int] = {}
        self.sidecars: dict[str, int] = {}
        self.tags: dict[str, Json] = {}
        self.pins: dict[str, Json] = {}

    def take(self, data: bytes) -> None:
        """Work in the next entry."""
        entry = json.loads(data)
        assert data == canonical(entry) + b"\n"
        rest = {name: value for name, value in entry.items() if name != "digest"}
        assert entry["digest"] == sha256(canonical(rest))
        assert entry["format"] == 1
        assert set(entry) <= KNOWN
        assert ("sidecars" in entry) == ("sidecars" in entry.get("features", ()))
        assert self.place.items() <= entry.items()
        assert (entry["number"], entry["previous"]) == (self.number + 1, self.digest)
        assert entry["time"] >= self.time
        assert self.schema or "schema" in entry or entry["operation"] == "vacuum"
        self.number, self.digest, self.time = entry["number"], entry["digest"], entry["time"]
        self._change(entry)
        self._attest(entry)
        for kind, holds in (("tag", self.tags), ("pin", self.pins)):
            hold = entry.get(kind)
            if hold and hold["snapshot"] is None:
                del holds[hold["name"]]
            elif hold:
                holds[hold["name"]] = hold
        self._compare_claims(entry)

    def _change(self, entry: Json) -> None:
        self.schema = entry.get("schema", self.schema)
        if "checks" in entry:
            self.policies.append((len(self.moments) + 1, entry["checks"]))
        if "added" in entry or "removed" in entry:
            self._make_snapshot(entry)
        self._note_sources(entry)
        if entry["operation"] not in {"reject", "restore"}:
            for shard in entry.get("added", ()):
                self.shard_names[sha256(shard["name"].encode())] = self.number
        added = {shard["name"] for shard in entry.get("added", ())}
        for name in entry.get("sidecars", ()):
            shard = name.removesuffix(".receipt").removesuffix(".rows")
            if shard.removesuffix(".jsonl") + ".tfrecord" * (shard == name) not in added:
                self.sidecars[sha256(name.encode())] = self.number
        for name in entry.get("condemned", ()):
            self.shard_names[sha256(name.encode())] = -self.number
            for landing in self.landings.get(name, ()):
                landing.words["vacuum"] = False

    def _note_sources(self, entry: Json) -> None:
        for source in entry.get("sources", ()):
            sign = -1 if entry["operation"] == "reject" else 1
            self.sources[sha256(canonical(source))] = sign * self.number
            self.open_sources.pop(place_of(source), None)
            if sign < 0:
                self.open_sources[place_of(source)] = self.number
        if entry["operation"] == "dismiss":
            for told in entry["parameters"]["dismissed"]:
                if self.open_sources.get(place_of(told["source"])) == told["entry"]:
                    del self.open_sources[place_of(told["source"])]

    def _make_snapshot(self, entry: Json) -> None:
        removed = entry.get("removed", [])
        before = self.moments[-1].shards if self.moments else []
        after = [landing for landing in before if landing.shard["name"] not in removed]
        assert len(after) == len(before) - len(removed)
        added = entry.get("added", [])
        placed = sorted((one for one in added if "at" in one), key=lambda one: one["at"])
        for told in [*placed, *(one for one in added if "at" not in one)]:
            shard = {name: value for name, value in told.items() if name != "at"}
            known = self.landings.setdefault(shard["name"], [])
            if not (known and entry["operation"] in BACK):
                known.append(Landing(shard, self.number))
            assert known[-1].shard == shard
            after.insert(told.get("at", len(after)), known[-1])
        moment = Moment(self.number, after, self._content(after))
        if entry["operation"] in BACK:
            same = [old for old in self.moments if old.content == moment.content]
            moment.words = dict(same[-1].words) if same else {}
        self.moments.append(moment)

    def _content(self, shards: Iterable[Landing]) -> str:
        assert self.schema is not None
        digest = hashlib.sha256(b"shardline content\n" + fingerprint_of(self.schema).encode())
        for landing in shards:
            one = bytes.fromhex(landing.shard["sha256"])
            base = bytes.fromhex(landing.shard.get("base", {}).get("sha256", ""))
            digest = hashlib.sha256(digest.digest() + one + base)
        return digest.hexdigest()

    def _attest(self, entry: Json) -> None:
        for told in entry.get("attestations", ()):
            meant: list[Landing] | list[Moment]
            if "content" in told:
                meant = [moment for moment in self.moments if moment.content == told["content"]]
            else:
                every = [landing for name in told["shards"] for landing in self.landings[name]]
                meant = [landing for landing in every if landing.entry < self.number]
            for one in meant:
                one.words[told["check"]] = told["passed"]
        if "rejects" in entry:
            self.moments[entry["rejects"] - 1].rejected = self.number

    def _compare_claims(self, entry: Json) -> None:
        newest = self.moments[-1] if self.moments else None
        nothing = {"records": 0, "bytes": 0, "shards": 0}
        assert entry["snapshot"] == len(self.moments)
        assert entry["content"] == (newest and newest.content)
        assert entry["totals"] == (newest.totals if newest else nothing)
        assert entry["fingerprint"] == (self.schema and fingerprint_of(self.schema))
        assert entry["published"] == self.published

    @property
    def published(self) -> int | None:
        good = [n for n in range(1, len(self.moments) + 1) if self.is_published(n)]
        return good[-1] if good else None

    def is_published(self, number: int) -> bool:
        moment = self.moments[number - 1]
        checks = [checks for since, checks in self.policies if since <= number][-1]
        return (
            bool(moment.shards)
            and not moment.rejected
            and all(moment.words.get(check) for check in checks["snapshot"])
            and all(
                all(landing.words.get(reserved, True) for reserved in RESERVED)
                and all(landing.words.get(check) for check in checks["shard"])
                for landing in moment.shards
            )
        )

    def told(self) -> Json:
        """All that is known, to compare."""
        return {
            **self.place,
            "number": self.number,
            "digest": self.digest,
            "schema": self.schema,
            "policies": self.policies,
            "published": self.published,
            "sources": self.sources,
            "open_sources": self.open_sources,
            "shard_names": self.shard_names,
            "sidecars": self.sidecars,
            "tags": self.tags,
            "pins": self.pins,
            "snapshots": [
                (
                    (moment.entry, moment.content, moment.rejected, moment.words, moment.totals),
                    [(landing.shard, landing.entry, landing.words) for landing in moment.shards],
                )
                for moment in self.moments
            ],
        }


def read_log(root: Path, dataset: str, version: str, *, last: int | None = None) -> Reader:
    """Replay every entry, or those up to the last one that is wanted."""
    reader = Reader(dataset, version)
    follow(root, reader, last)
    return reader


def follow(root: Path, reader: Reader, last: int | None = None) -> None:
    """Replay what comes behind a reader's entry."""
    while reader.number != last:
        path = _log_of(root, reader) / f"{reader.number + 1:020}.json"
        if not path.exists():
            return
        reader.take(path.read_bytes())


def hinted_checkpoint(root: Path, dataset: str, version: str) -> Reader:
    """A version as its newest checkpoint tells it."""
    reader = Reader(dataset, version)
    log = _log_of(root, reader)
    number = json.loads((log / "newest-checkpoint.json").read_bytes())["entry"]
    data = (log / f"{number:020}.checkpoint").read_bytes()
    assert data[:8] == b"SHRDCKP1"
    end = 16 + int.from_bytes(data[8:16], "little")
    assert hashlib.sha256(data[:end]).digest() == data[end : end + 32]
    header = json.loads(data[16:end])
    assert canonical(header) == data[16:end]
    assert header["format"] in {1, 2, 3}
    assert ("sidecars" in header["tables"]) == (header["format"] == 3)
    assert [header["bits"][check] for check in RESERVED] == [0, 1]
    assert reader.place.items() <= header.items()
    assert header["number"] == number
    entry = json.loads((log / f"{number:020}.json").read_bytes())
    assert header["digest"] == entry["digest"]
    tables = _tables(header["tables"], data[end + 32 :])
    reader.number, reader.digest, reader.time = number, header["digest"], entry["time"]
    reader.schema = header["schema"]
    reader.policies = [(since, checks) for since, checks in header["policies"]]
    reader.tags = {hold["name"]: hold for hold in header["tags"]}
    reader.pins = {hold["name"]: hold for hold in header["pins"]}
    reader.sources = {row["key"].hex(): row["number"] for row in tables["sources"]}
    if "open_sources" in tables:
        rows = tables["open_sources"]
        reader.open_sources = {row["key"].hex(): row["number"] for row in rows}
    else:  # an earlier release wrote it
        reader.open_sources = read_log(root, dataset, version, last=number).open_sources
    reader.shard_names = {row["key"].hex(): row["number"] for row in tables["shard_names"]}
    reader.sidecars = {row["key"].hex(): row["number"] for row in tables.get("sidecars", ())}
    _take_tables(reader, tables, header["bits"])
    newest = tables["timeline"][-1]
    assert header["snapshot"] == len(reader.moments)
    assert header["snapshot_entry"] == newest["entry"]
    assert header["snapshot_rejected"] == newest["rejected"]
    assert header["content"] == reader.moments[-1].content
    assert header["totals"] == reader.moments[-1].totals
    assert header["published"] == reader.published
    return reader


def _tables(places: Json, data: bytes) -> dict[str, list[Json]]:
    assert sum(place["size"] for place in places.values()) == len(data)
    tables = {}
    for name, place in places.items():
        stream = data[place["offset"] :][: place["size"]]
        assert sha256(stream) == place["sha256"]
        tables[name] = pyarrow.ipc.open_stream(stream).read_all().to_pylist()
    return tables


def _take_tables(reader: Reader, tables: dict[str, list[Json]], bits: dict[str, int]) -> None:
    def words(row: Json) -> dict[str, bool]:
        assert row["passed"] & row["failed"] == 0
        said = row["passed"] | row["failed"]
        return {check: bool(row["passed"] >> b & 1) for check, b in bits.items() if said >> b & 1}

    stays = []
    for row in tables["stays"]:
        known = reader.landings.setdefault(row["name"], [])
        if not known or known[-1].entry != row["landed"]:
            known.append(Landing(_shard(row), row["landed"], words(row)))
        assert (known[-1].shard, known[-1].words) == (_shard(row), words(row))
        stays.append((row["since"], row["until"], known[-1]))
    for number, row in enumerate(tables["timeline"], 1):
        shards = [landing for since, until, landing in stays if since <= number < until]
        moment = Moment(row["entry"], shards, row["content"].hex(), row["rejected"], words(row))
        assert {name: row[name] for name in moment.totals} == moment.totals
        assert moment.content == reader._content(shards)
        reader.moments.append(moment)


def _shard(row: Json) -> Json:
    shard = {name: row[name] for name in ("name", "records", "bytes")}
    shard["sha256"] = row["sha256"].hex()
    shard["compression"] = COMPRESSIONS[row["compression"]]
    if row["source"] is not None:
        shard["source"] = row["source"].hex()
    if row["base"] is not None:
        shard["base"] = {"name": row["base"], "sha256": row["base_sha256"].hex()}
    return shard


def _log_of(root: Path, reader: Reader) -> Path:
    return root / reader.place["dataset"] / reader.place["version"] / "log"
