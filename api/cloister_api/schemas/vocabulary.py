"""The API's words for what manifests call otherwise.

A rule that holds at both doors has one sentence, in the contract or in the operator. Its references
to fields are those of a manifest: ``spec.<field>``, or a name in camelCase. A reader who applies
manifests reads them as they are; whatever the API shows passes through `in_api_words`.
"""

import re

from cloister_api.schemas.containers import CreateContainerRequest, api_name
from cloister_crds.kinds.container import ContainerSpec

SHOWN = {"auto_update", "github_connected", *CreateContainerRequest.model_fields}
"""Fields of a Container's spec that the API has too."""
WORDS = {
    field.alias or name: api_name(name)
    for name, field in ContainerSpec.model_fields.items()
    if name in SHOWN
} | {"publicKey": "public_key"}
"""Fields by their names in a manifest."""
REFERENCE = re.compile(
    r"\bspec\.(?P<path>{every})\b|\b(?P<bare>{camel})\b".format(
        every="|".join(WORDS), camel="|".join(name for name in WORDS if not name.islower())
    )
)
"""A field of a manifest: after ``spec.``, or a name that is not another word."""
ACTIONS = (
    (re.compile(r"[Ss]et spec\.state to Running to start it"), "start it"),
    (re.compile(r"Set spec\.promote to \S+, or accept the update,"), "Accept the update"),
    (re.compile(r"set spec\.commit to it"), "relaunch the container and send the tag"),
    (re.compile(r"set spec\.relaunch to another value"), "relaunch the container"),
    (
        re.compile(r"[,;] (or accept that with|set) spec\.acceptSharedNetwork"),
        "; with kubectl that can be accepted (spec.acceptSharedNetwork)",
    ),
)
"""What a manifest does by a field, and the API by an action, or not at all."""


def in_api_words(sentence: str) -> str:
    """Return a sentence about a manifest in the API's words; any other stays as it is."""
    if "spec." in sentence:
        for pattern, words in ACTIONS:
            sentence = pattern.sub(words, sentence)
    return REFERENCE.sub(lambda found: WORDS[found["path"] or found["bare"]], sentence)
