"""A lake in an S3-compatible object store: which addresses are taken, where the credentials come from, what delta-rs is told.

A commit is one object written with `If-None-Match: *`, so that of two hosts that write the same version one is told (`aws_conditional_put`); a
store that takes that header and ignores it would lose commits without a word, which is why a new lake is tried first. Credentials are those of
the environment or of a profile of the AWS command line; they are never part of an address, an argument or a settings file. delta-rs itself asks
the network (the address of a cloud's instance metadata) where it finds none; nothing here lets it come to that.
Not by renames or a lock table: neither is needed where the store decides who came first.
"""

from __future__ import annotations

import configparser
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector

from ingest.conditional_put import refuses_a_second
from ingest.errors import LedgerError

_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_OTHER_SOURCES = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
_FROM_A_PROFILE = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_ASKED_ELSEWHERE = ("role_arn", "sso_session", "sso_start_url", "credential_process", "web_identity_token_file", "login_session")
_EXPORT = 'eval "$(aws configure export-credentials --format env)" puts the keys of such a profile into the environment'


def is_address(root: str) -> bool:
    """Whether a lake's root is an address, not a folder."""
    return "://" in root


def checked(root: str) -> str:
    """An address as delta-rs takes it. Raises LedgerError for one that holds credentials, is no S3 address, or names no bucket."""
    parts = urlsplit(root)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise LedgerError("an address of a lake holds no user, key or option", where=f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}",
                          todo="credentials come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or a profile (AWS_PROFILE)")
    if parts.scheme != "s3":
        raise LedgerError(f"lakes at {parts.scheme}:// are not supported", where=root,
                          todo="use a folder, or s3://bucket/prefix (any store that speaks S3; AWS_ENDPOINT_URL names another one than Amazon's)")
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", parts.netloc) or not re.fullmatch(r"(/[A-Za-z0-9._=+-]+)*/?", parts.path):
        raise LedgerError("an address is s3://bucket/prefix, of letters, digits and . _ - = +", where=root, todo="name another place with --lake")
    return root.rstrip("/")


def options() -> dict[str, str]:
    """Storage options for delta-rs, from environment and profile. Raises LedgerError where no credentials are found."""
    profile = _profile()
    endpoint = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), profile.get("endpoint_url"))
    found = {"aws_conditional_put": "etag", "aws_s3_allow_unsafe_rename": "false"}
    if not all(os.environ.get(name) for name in _KEYS) and not any(os.environ.get(name) for name in _OTHER_SOURCES):
        found |= _keys(profile)
    if not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")) and profile.get("region"):
        found["aws_region"] = profile["region"]
    if endpoint:
        found |= {"aws_endpoint_url": endpoint, "aws_allow_http": _http_allowed(endpoint)}
    return found


def _http_allowed(endpoint: str) -> str:
    """Plain HTTP is taken on this machine, or where AWS_ALLOW_HTTP says so."""
    parts = urlsplit(endpoint)
    if parts.scheme != "http" or parts.hostname in ("127.0.0.1", "::1", "localhost"):
        return "true" if parts.scheme == "http" else "false"
    if os.environ.get("AWS_ALLOW_HTTP", "").lower() not in ("1", "true"):
        raise LedgerError("the object store's address is plain http: everything would be readable on its way", where=endpoint.rpartition("@")[2],
                          todo="use https, or allow it with AWS_ALLOW_HTTP=true")
    return "true"


def _profile() -> dict[str, str]:
    """What the two files of the AWS command line say of the profile in use; nothing where there are none."""
    name = os.environ.get("AWS_PROFILE") or "default"
    shared = _ini("AWS_SHARED_CREDENTIALS_FILE", "credentials")
    config = _ini("AWS_CONFIG_FILE", "config")
    return {**_section(config, name if name == "default" else f"profile {name}"), **_section(shared, name)}


def _ini(variable: str, file: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False)
    path = os.environ.get(variable) or Path.home() / ".aws" / file
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError, OSError) as error:
        raise LedgerError("the file of profiles cannot be read", where=str(path), todo=f"mend it, or name another with {variable}") from error
    return parser


def _section(parser: configparser.RawConfigParser, name: str) -> dict[str, str]:
    return dict(parser.items(name)) if parser.has_section(name) else {}


def _keys(profile: dict[str, str]) -> dict[str, str]:
    if profile.get("aws_access_key_id") and profile.get("aws_secret_access_key"):
        return {name: profile[name] for name in _FROM_A_PROFILE if profile.get(name)}
    name = os.environ.get("AWS_PROFILE")
    if elsewhere := next((key for key in _ASKED_ELSEWHERE if key in profile), None):
        raise LedgerError(f"the profile gets its keys elsewhere ({elsewhere}), which is not done here", where=name or "default", todo=_EXPORT)
    what = f"the profile {name} holds no keys" if name else "no credentials for the object store"
    raise LedgerError(what, where="environment and ~/.aws", todo="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")


def holds_parquet(address: str, settings: dict[str, str]) -> bool:
    """Whether any Parquet file lies below an address."""
    listed = DeltaStorageHandler(address, settings).get_file_info_selector(FileSelector("", allow_not_found=True, recursive=True))
    return any(one.path.endswith(".parquet") for one in listed)


def try_conditional_writes(root: str, settings: dict[str, str]) -> None:
    """Raises LedgerError where a store other than Amazon's does not refuse a second object of one name.

    Not asked where the keys are neither in the environment nor in a profile, or where the store is addressed by host names.
    """
    keys = {name: settings.get(name) or os.environ.get(name.upper(), "") for name in _FROM_A_PROFILE}
    endpoint = settings.get("aws_endpoint_url", "")
    if not endpoint or not all(keys[name] for name in _FROM_A_PROFILE[:2]) or os.environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false") != "false":
        return
    parts = urlsplit(root)
    region = settings.get("aws_region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    refused, name = refuses_a_second(endpoint, parts.netloc, parts.path, keys, region)
    DeltaStorageHandler(root, settings).delete_file(name.rpartition("/")[2])
    if not refused:
        raise LedgerError("the object store takes two objects of one name where the second must be refused (If-None-Match): commits would be lost",
                          where=root, todo="use a store with conditional writes, or a folder")
