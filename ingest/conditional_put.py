"""Whether an S3-compatible store refuses a second object of one name (`If-None-Match: *`), on which every commit relies.

Amazon's does. Of others some versions take the header and ignore it: then two hosts overwrite each other's commits without a word, and no error
ever tells. delta-rs looks before it writes, so trying with two of its writers would not show it; the one request that does is sent here,
signed by AWS Signature Version 4 (docs.aws.amazon.com, "Create a signed AWS API request"), twice, for an object that is then removed.
"""

from __future__ import annotations

import hashlib
import hmac
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

_EMPTY = hashlib.sha256(b"").hexdigest()


def refuses_a_second(endpoint: str, bucket: str, prefix: str, keys: Mapping[str, str], region: str) -> tuple[bool, str]:
    """Whether the second write was refused, and the name of the object left behind. `keys` by their names in a profile. Raises OSError."""
    name = f"{prefix.strip('/')}/_try-{uuid.uuid4().hex}".lstrip("/")
    address = f"{endpoint.rstrip('/')}/{bucket}/{quote(name)}"
    answers = [_status(_signed(address, keys, region, datetime.now(UTC))) for _ in range(2)]
    if answers[0] >= 300:
        raise OSError(f"the store answered {answers[0]} to a first write")
    return answers[1] in (409, 412), name


def _status(request: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _signed(address: str, keys: Mapping[str, str], region: str, at: datetime) -> urllib.request.Request:
    """A PUT of nothing."""
    parts, stamp = urlsplit(address), at.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": parts.netloc, "if-none-match": "*", "x-amz-content-sha256": _EMPTY, "x-amz-date": stamp}
    if keys.get("aws_session_token"):
        headers["x-amz-security-token"] = keys["aws_session_token"]
    names, scope = ";".join(sorted(headers)), f"{stamp[:8]}/{region}/s3/aws4_request"
    canonical = "\n".join(["PUT", parts.path, "", *(f"{name}:{headers[name]}" for name in sorted(headers)), "", names, _EMPTY])
    signed = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    secret = f"AWS4{keys['aws_secret_access_key']}".encode()
    for step in scope.split("/"):
        secret = hmac.digest(secret, step.encode(), "sha256")
    headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={keys['aws_access_key_id']}/{scope}, SignedHeaders={names}, "
                                f"Signature={hmac.new(secret, signed.encode(), 'sha256').hexdigest()}")
    return urllib.request.Request(address, data=b"", headers={**headers, "content-type": "application/octet-stream"}, method="PUT")
