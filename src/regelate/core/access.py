"""What one request may touch in the object store and in Glue, as the session policy of its AWS credentials.

The session can do what its role may AND this policy allows, so a fault of this program cannot reach farther. It is
made of the tenant's prefix: every namespace of the tenant `acme` starts with `acme__`, and so does its folder.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from enum import StrEnum

from regelate.core.values import dataclass

MAX_POLICY_CHARACTERS = 2_048
"""AWS STS, AssumeRole: the plain text of an inline session policy."""
MAX_SESSION_NAME_CHARACTERS = 64
_SEAM = "__"
_READ_GLUE = (
    "glue:BatchGetTableOptimizer",
    "glue:GetDatabase",
    "glue:GetDatabases",
    "glue:GetTable",
    "glue:GetTables",
)
_WRITE_GLUE = ("glue:CreateDatabase", "glue:CreateTable", "glue:DeleteTable", "glue:UpdateTable")
_WRITE_FILES = ("s3:AbortMultipartUpload", "s3:DeleteObject", "s3:PutObject")
_SPECIAL = re.compile(r"[*?$]")
_NOT_IN_A_NAME = re.compile(r"[^\w+=,.@-]", re.ASCII)
Statement = dict[str, object]


class Access(StrEnum):
    """`READ` and `WRITE` are about one tenant's tables; `SURVEY` sees the metadata of all, and no data file."""

    READ = "read"
    WRITE = "write"
    SURVEY = "survey"


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSession:
    """Credentials of one session. Their text shows no secret."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(repr=False)
    expires_ms: int

    @property
    def properties(self) -> dict[str, str]:
        """Return them as a catalog's properties: for its files, and for Glue."""
        names = ("access-key-id", "secret-access-key", "session-token")
        values = (self.access_key_id, self.secret_access_key, self.session_token)
        return {f"{of}.{name}": v for of in ("s3", "glue") for name, v in zip(names, values, strict=True)}


def session_policy(access: Access, tenant: str | None, warehouse: str, *, partition: str = "aws") -> str:
    """Return the policy of a session on the warehouse `s3://bucket/prefix`, as compact JSON.

    `tenant` None: the catalog knows no tenants, everything in it is one tenant's. A longer name that starts with the
    tenant's (`acme_`, whose namespaces start with `acme___`) is denied: a wildcard alone would let it in.
    """
    name, _, path = warehouse.partition("://")[2].partition("/")
    root = _literal("/".join(part for part in (name, path.strip("/")) if part))
    bucket = f"arn:{partition}:s3:::{name}"
    own = "" if tenant is None or access is Access.SURVEY else f"{tenant}{_SEAM}"
    folder = f"{root}/{own}*"
    files = f"arn:{partition}:s3:::{f'{root}/*.metadata.json' if access is Access.SURVEY else folder}"
    glue = f"arn:{partition}:glue:*:*:"
    names = [f"{glue}catalog", f"{glue}database/{own}*", f"{glue}table/{own}*"]
    writes = access is Access.WRITE
    prefix, longer = folder.partition("/")[2], f"{own}_*"
    foreign_prefix = {"StringNotLike": {"s3:prefix": f"{root}/{longer}".partition("/")[2]}} if own else {}
    statements: list[Statement] = [
        _allow(("s3:GetObject", *(_WRITE_FILES if writes else ())), files),
        {
            # IfExists: a GET of what is missing has no prefix, and without this S3 would say 403 instead of 404.
            **_allow(("s3:ListBucket", *(("s3:ListBucketMultipartUploads",) if writes else ())), bucket),
            "Condition": {"StringLikeIfExists": {"s3:prefix": prefix}, **foreign_prefix},
        },
        _allow((*_READ_GLUE, *(_WRITE_GLUE if writes else ())), names),
        _allow(("kms:Decrypt", *(("kms:GenerateDataKey",) if writes else ())), "*"),
    ]
    if own:
        foreign = [f"arn:{partition}:s3:::{root}/{longer}", f"{glue}database/{longer}", f"{glue}table/{longer}"]
        statements.append({"Effect": "Deny", "Action": ["s3:*", "glue:*"], "Resource": foreign})
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))


def spark_policy(tenant: str, warehouse: str, location: str, run: str, *, partition: str = "aws") -> str:
    """Return the policy of a Spark job for one tenant's tables: those, its program, its result, and nothing more.

    `location` is `s3://bucket/prefix`, with the folders `program` and `results`; `run` is the run's name, which its
    result has too: no run can answer in the place of another tenant's. The job can do what its role may AND this policy
    allows.
    """
    made = json.loads(session_policy(Access.WRITE, tenant, warehouse, partition=partition))
    folder = f"arn:{partition}:s3:::{_literal(location.removeprefix('s3://').rstrip('/'))}"
    made["Statement"] += [
        _allow(("s3:GetObject",), f"{folder}/program/*"),
        _allow(("s3:PutObject",), f"{folder}/results/{_literal(run)}.json"),
    ]
    return json.dumps(made, separators=(",", ":"))


def session_name(access: Access, tenant: str | None) -> str:
    """Return the name that CloudTrail shows for what the session does; another spelling where AWS allows none."""
    told = _NOT_IN_A_NAME.sub("-", f"regelate-{access.value}-{tenant or 'all'}")
    return told[:MAX_SESSION_NAME_CHARACTERS]


def _allow(actions: tuple[str, ...], resource: str | list[str]) -> Statement:
    return {"Effect": "Allow", "Action": list(actions), "Resource": resource}


def _literal(text: str) -> str:
    """Spell characters that IAM would take for wildcards or variables as what they are."""
    return _SPECIAL.sub(lambda found: f"${{{found[0]}}}", text)
