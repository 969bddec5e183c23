"""What the last lines of a log that ended an engine mean: a table of words, reason and remedy.

Decides by the first row whose words are there. Never repeats a line, which may hold a secret and changes.
"""

import re
from typing import Final, NamedTuple

from shardwright.api.reasons import Reason

_FETCHED: Final = "/cache/huggingface/shardwright/"
"""Where a Job leaves weights (`render.storage.FETCHED_PATH`): who names it has them from there."""


class Meaning(NamedTuple):
    """A row of the table."""

    words: re.Pattern[str]
    reason: Reason
    message: str
    also: str = ""
    """Text that must be there besides."""


MEANINGS: Final = (
    # vLLM and PyTorch.
    Meaning(
        re.compile(
            r"CUDA out of memory|HIP out of memory|OutOfMemoryError|No available memory for the cache blocks"
            r"|larger than the available KV cache memory"
        ),
        Reason.OUT_OF_MEMORY,
        "The engine ran out of GPU memory while starting, so the prediction was too high: "
        "lower spec.engine.gpuMemoryUtilizationPercent, spec.model.maxContextTokens or "
        "spec.engine.maxNumSeqs, or pin a larger spec.parallelism.tensor",
    ),
    # boto3, google-auth and azure-identity when they find no credentials.
    Meaning(
        re.compile(
            r"NoCredentialsError|Unable to locate credentials|DefaultCredentialsError"
            r"|DefaultAzureCredential failed"
        ),
        Reason.HUB_UNAUTHORIZED,
        "The object store gets no credentials: the keys of the Secret that "
        "spec.model.source.uri.credentialsSecretRef names become environment variables, and must be "
        "those that the store's client reads, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for s3",
    ),
    # The hub's client, transformers and vLLM when a file is not there.
    Meaning(
        re.compile(
            r"Repo id must|Invalid repository ID|Incorrect path_or_model_id|Can't load the"
            r"|offline mode is enabled|Cannot find any model weights|No such file or directory"
            r"|outgoing traffic has been disabled"
        ),
        Reason.WEIGHTS_MISSING,
        "The engine does not find its weights in the cache claim, where a Job had put them: "
        "they are fetched again, and it starts by itself then; keep what empties the claim from it",
        also=_FETCHED,
    ),
    # The hub's client when the hub answers 429, 401 and 403, and 404.
    Meaning(
        re.compile(r"429 Client Error|Too Many Requests|rate.?limit", re.IGNORECASE),
        Reason.HUB_RATE_LIMITED,
        "The hub limits the rate of downloads, and the download is tried again by itself, ever "
        "less often up to every five minutes: give a token with source.hub.tokenSecretRef, or download "
        "once with spec.model.cache or a mirror",
    ),
    Meaning(
        re.compile(
            r"GatedRepoError|RepositoryNotFoundError|40[13] Client Error|Client error '40[13]|is restricted"
            r"|gated repo"
        ),
        Reason.HUB_UNAUTHORIZED,
        "The hub refuses the model: check spec.model.id, accept the model's licence, and "
        "give a token with source.hub.tokenSecretRef",
    ),
    Meaning(
        re.compile(r"RevisionNotFoundError|is not a valid git identifier"),
        Reason.MODEL_NOT_FOUND,
        "The hub has no such revision of the model: correct spec.model.revision or spec.model.id",
    ),
    # The hub's client and transformers when the hub fails or cannot be reached.
    Meaning(
        re.compile(
            r"\b5\d\d Server Error|Server error '5\d\d|We couldn't connect to 'http|LocalEntryNotFoundError"
        ),
        Reason.HUB_UNAVAILABLE,
        "The hub does not answer, or with an error of its own, and the download is tried again "
        "by itself, ever less often up to every five minutes: if it lasts, look at the way out of the "
        "cluster, or name a mirror in spec.model.source.hub.endpoint",
    ),
)


def meaning(said: str) -> Meaning | None:
    """Return what a log's last lines mean; None when they say nothing that is known."""
    return next((row for row in MEANINGS if row.also in said and row.words.search(said)), None)
