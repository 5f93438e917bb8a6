"""Hypothesis strategies for objects of the kinds as users might write them, valid and invalid.

They are drawn from the structural schema of a kind: most values fit, some are of the wrong type,
missing, unknown, too long or nearly match a pattern. This module does not know which is which:
the verdicts of the API server and of pydantic are compared.
"""

import re
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from cloister_crds.crd_manifests import custom_resource_definition
from cloister_crds.kinds.meta import Resource
from cloister_crds.kinds.sshkey import KEBAB_PATTERN, SSHKey
from cloister_crds.schema.markers import VALIDATIONS

__all__ = ["full", "schema_of", "specimens", "statuses", "sweep"]

WRONG: tuple[Any, ...] = (
    None,
    True,
    "true",
    "",
    0,
    1,
    1.0,
    1.5,
    -1,
    10**20,
    [],
    {},
    [None],
    {"a": 1},
    "2",
)
"""Values that fit few fields."""
WORDS = (
    *("web", "a", "a-b", "web.debug", "Web", "-a", "a-", "a.b", "a..b", "9", "x" * 63, "x" * 64),
    *("x" * 65, "x" * 253, "x" * 254, "kube-system", "default", "cloister-system", "kube", "acme"),
    *("acme/web", "acme/web.git", "a/b/c", "https://x/y", "/web", "acme/", "A_b/c-d.e", "acme/.x"),
    *("v1.0.0", "-v1", "v 1", "v1~2", "release/1", "v1\n", "ü", "v[1", "0" * 40, "g" * 40),
    *("0" * 39, "app.example.com", "App.example.com", "example", "a.b-.c", "*.example.com"),
    *("x" * 63 + ".example.com", "x" * 64 + ".example.com", "example.com.", "OPENAI_API_KEY"),
    *(
        "tls-key",
        "tls_key",
        "_X",
        "X__Y",
        "A-b",
        "PATH",
        "1X",
        "X Y",
        "nvidia.com/gpu",
        "nvidia.com/",
    ),
    *("ab" * 32 + "_4096_6493760e-f831-5d28-81b4-39e665a8095a", "ab" * 32 + "_0_6493760e"),
    *("/srv/models", "/srv/../models", "/srv/.models", "/", "http://127.0.0.1:8006", "unix:///a"),
    *("http://dcgm.gpus.svc:9400/metrics", "http://[::1]/", "https://dcgm/metrics", "http://dcgm"),
    *("/dev/kvm", "/dev/", "/dev/a/../b", "/dev//x", "kvm", "ghcr", "gcr", "dockerhub", "quay"),
    *("ssh-ed25519 AAAAC3Nz user@host", "ssh-ed25519 AAAA", "ssh-ed25519", "ssh-dss AAAA x"),
    *("ecdsa-sha2-nistp256 AAAA= ü", "ssh-rsa AAAA\nssh-rsa BBBB", "sk-ssh-ed25519@openssh.com AA"),
    *("2026-01-31T12:00:00Z", "2026-02-30T12:00:00Z", "2026-01-31T12:00:00+01:00", "2026-01-31"),
    *("6493760e-f831-5d28-81b4-39e665a8095a", "6493760E-F831-5D28-81B4-39E665A8095A", "6493760e"),
    *("2026-01-31T12:00:00.123456Z", "2026-01-31t12:00:00z", "2026-01-31T24:00:00Z"),
    *(
        "2026-12-31T23:59:60Z",
        "1769860800",
        "Ready",
        "example.com/Ready",
        "Ready?",
        "1Ready",
        ".key",
    ),
    *(
        "Exists",
        "Equal",
        "NoSchedule",
        "None",
        "SNP",
        "user@example.com",
        "two words",
        "\x00",
        "😀",
    ),
)
"""Strings that are valid for some field and nearly valid for others."""
NAMES = (
    *("web", "app.example.com", "ghcr", "dockerhub", "gcr", "web.debug", "x" * 63, "x" * 64),
    *("x" * 65, "9", "acme", "x" * 253, "x" * 254, "-web", "Web", "web_1", "a..b", "a.-b", "1.2"),
)
"""Names of objects, most of them valid for some kind."""
LITERAL = re.compile(r"self\.matches\(r'(.*)'\)")
"""A CEL rule of the CRDs about the form of a string."""


def schema_of(kind: type[Resource], part: str) -> dict[str, Any]:
    """Return the structural schema of ``spec`` or ``status``; empty = the kind has none."""
    definition = custom_resource_definition(kind)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    part_schema: dict[str, Any] = schema["properties"].get(part, {})
    return part_schema


def specimens(kind: type[Resource]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw whole objects without status."""
    head = {"apiVersion": kind.INFO.api_version, "kind": kind.INFO.kind}
    # The server refuses others of a new SSHKey only; the model reads those of earlier releases too.
    kebab = re.compile(KEBAB_PATTERN if kind is SSHKey else "")
    names = st.sampled_from([each for each in NAMES if kebab.match(each)])
    favourites = {"RegistryCredential": "ghcr", "HostnameClaim": "web.acme.example.com"}
    usual = st.just(favourites.get(kind.INFO.kind, "web"))
    objects = st.fixed_dictionaries(
        {
            "metadata": st.fixed_dictionaries({"name": st.one_of(usual, usual, usual, names)}),
            "spec": _clean_or_not(schema_of(kind, "spec")),
        }
    )
    return objects.map(lambda drawn: {**head, **drawn})


def statuses(kind: type[Resource]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw statuses of a kind that has one."""
    return _clean_or_not(schema_of(kind, "status"))


def _clean_or_not(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw objects whose fields are all valid by themselves, and as many with an invalid one."""
    clean, dirty = _object(schema, clean=True), _object(schema, clean=False)
    return st.booleans().flatmap(lambda tidy: clean if tidy else dirty)


def _value(schema: dict[str, Any], *, clean: bool) -> st.SearchStrategy[Any]:
    """Draw a value that fits a schema; unless ``clean``, sometimes one that does not."""
    fitting = _fitting(schema, clean=clean)
    if clean:
        return fitting
    return st.integers(0, 39).flatmap(lambda dice: st.sampled_from(WRONG) if dice == 0 else fitting)


def _fitting(schema: dict[str, Any], *, clean: bool) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"] if clean else (*schema["enum"] * 8, "Other"))
    match schema["type"]:
        case "boolean":
            return st.booleans()
        case "integer":
            return _integer(schema, clean=clean)
        case "string":
            return _string(schema, clean=clean)
        case "array":
            items = _value(schema["items"], clean=clean)
            return st.lists(items, max_size=min(3, schema["maxItems"]))
        case "object":
            return _object(schema, clean=clean)
        case kind:
            raise AssertionError(f"no strategy for type {kind}")


def _integer(schema: dict[str, Any], *, clean: bool) -> st.SearchStrategy[int]:
    low, high = schema["minimum"], schema["maximum"]
    inside = st.integers(low, min(high, low + 70))
    if clean:
        return inside
    return st.one_of(inside, inside, inside, st.sampled_from((low - 1, low, high, high + 1)))


def _patterns(schema: dict[str, Any]) -> list[str]:
    """Return all expressions that a string must match."""
    patterns = [
        found.group(1)
        for rule in schema.get(VALIDATIONS, ())
        if (found := LITERAL.fullmatch(rule["rule"]))
    ]
    return [*patterns, schema["pattern"]] if "pattern" in schema else patterns


def _good_words(schema: dict[str, Any]) -> list[str]:
    """Return the words that are valid for a string."""
    patterns, shortest = _patterns(schema), schema.get("minLength", 0)
    return [
        word
        for word in WORDS
        if shortest <= len(word) <= schema["maxLength"]
        and all(re.fullmatch(pattern, word) for pattern in patterns)
    ]


def _string(schema: dict[str, Any], *, clean: bool) -> st.SearchStrategy[str]:
    """Draw words that fit all rules, words that fit others, and text at the length bounds."""
    patterns, good, longest = _patterns(schema), _good_words(schema), schema["maxLength"]
    if clean and good:
        return st.sampled_from(good)
    anything = st.sampled_from(WORDS) | st.text(max_size=4)
    if 0 < longest <= 1024:
        anything |= st.sampled_from(("x" * longest, "x" * (longest + 1)))
    drawn = [st.from_regex(pattern, fullmatch=True) for pattern in patterns[:1]]
    if good:
        return st.integers(0, 15).flatmap(
            lambda dice: (
                anything
                if dice == 0
                else drawn[0]
                if dice == 1 and drawn
                else st.sampled_from(good)
            )
        )
    return st.one_of(anything, *drawn, *drawn, *drawn)


def _object(schema: dict[str, Any], *, clean: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Draw an object: nearly always with required fields, sometimes with unknown ones."""
    properties, required = schema["properties"], schema.get("required", [])
    fitting = st.fixed_dictionaries(
        {name: _value(properties[name], clean=clean) for name in required},
        optional={
            name: _value(value, clean=clean)
            for name, value in properties.items()
            if name not in required
        },
    )

    if clean:
        return fitting

    def spoil(drawn: tuple[dict[str, Any], int]) -> dict[str, Any]:
        value, dice = drawn
        if dice == 0:
            return {**value, "unknownField": 1}
        if 1 <= dice <= len(required) and dice < 4:
            return {key: kept for key, kept in value.items() if key != required[dice - 1]}
        return value

    return st.tuples(fitting, st.integers(0, 79)).map(spoil)


def sweep(schema: dict[str, Any], full: Any) -> Iterator[Any]:
    """Return copies of a full value, each with one invalid place.

    Parameters
    ----------
    full
        Value that has every field and one item in every list; fields may be absent that no valid
        value has together with others.
    """
    yield from WRONG
    match schema["type"]:
        case "object":
            for name, below in schema["properties"].items():
                if name not in full:
                    continue
                yield {key: value for key, value in full.items() if key != name}
                for variant in sweep(below, full[name]):
                    yield {**full, name: variant}
        case "array":
            yield full * 2
            for variant in sweep(schema["items"], full[0]):
                yield [variant]
        case "string" if "enum" not in schema:
            yield from ("x" * schema["maxLength"], "x" * (schema["maxLength"] + 1), "x\n", "\x00")
            if _patterns(schema):
                yield from WORDS
        case "integer":
            yield from (schema["minimum"] - 1, schema["minimum"], schema["maximum"] + 1)
            yield float(schema["maximum"])
        case _:
            pass


def full(schema: dict[str, Any]) -> Any:
    """Return a value that has every field and one item in every list, each valid by itself."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema["type"]:
        case "object":
            return {name: full(below) for name, below in schema["properties"].items()}
        case "array":
            return [full(schema["items"])]
        case "boolean":
            return True
        case "integer":
            return schema["minimum"] + 1
        case _:
            return _good_words(schema)[0]
