"""Encrypted fields through Powertools' data masking: the AWS Encryption SDK with the environment's KMS key."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from loomjobs.aws import clients
from loomjobs.core.errors import BadPayload, CipherUnavailable, ConfigurationError

if TYPE_CHECKING:
    import boto3
    from aws_lambda_powertools.utilities.data_masking import DataMasking


class KmsCipher:
    """Implements core's Cipher. `key` gives the ARN of the KMS key, and is asked on first use; `session` is a boto3
    session where the process's own credentials are not the ones to use.

    The job's name is KMS's encryption context. A data key is made for each job and used for five minutes
    (Powertools' default), so sending costs one call of KMS in that time; decrypting costs one for each message.
    """

    def __init__(self, key: Callable[[], str], *, session: boto3.session.Session | None = None) -> None:
        self._key = key
        self._session = session

    def encrypt(self, text: str, /, *, job: str) -> str:
        masking = self._masking
        from aws_lambda_powertools.utilities.data_masking.exceptions import DataMaskingEncryptKeyError

        try:
            return masking.encrypt(text, job=job)
        except DataMaskingEncryptKeyError as error:
            raise CipherUnavailable(f"{job}: KMS gave no data key{_because(error)}") from error

    def decrypt(self, text: str, /, *, job: str) -> str:
        masking = self._masking
        from aws_lambda_powertools.utilities.data_masking.exceptions import DataMaskingDecryptKeyError

        try:
            return str(masking.decrypt(text, job=job))
        except DataMaskingDecryptKeyError as error:
            raise CipherUnavailable(f"{job}: KMS did not decrypt the data key{_because(error)}") from error
        except Exception as error:  # noqa: BLE001 the SDK raises whatever parsing and verifying a changed text comes to
            what = f"its encrypted fields are not those of a message of this job ({type(error).__name__})"
            raise BadPayload("$", what) from None

    @cached_property
    def _masking(self) -> DataMasking:
        """Made on first use: that takes 0.15 s of CPU (measured), which jobs without encrypted fields do not pay."""
        try:
            from aws_lambda_powertools.utilities.data_masking import DataMasking

            kms: Any = import_module("aws_lambda_powertools.utilities.data_masking.provider.kms.aws_encryption_sdk")
        except ImportError as error:
            cure = "Install loomjobs[encryption]."
            raise ConfigurationError(f"encrypted fields need the AWS Encryption SDK: {error}. {cure}") from error
        key = self._key()
        provider = _provider(kms, key, self._session or clients.kms_session())
        return DataMasking(provider=kms.AWSEncryptionSDKProvider(keys=[key], key_provider=provider))


def _provider(kms: Any, key: str, session: boto3.session.Session) -> Any:
    """Powertools' key provider, over our session: it makes one of its own, without our timeouts and credentials."""
    made = kms.KMSKeyProvider(keys=[key], json_serializer=json.dumps, json_deserializer=json.loads)
    made.key_provider = kms.StrictAwsKmsMasterKeyProvider(key_ids=[key], botocore_session=session._session)
    made.cache_cmm = kms.CachingCryptoMaterialsManager(
        master_key_provider=made.key_provider,
        cache=made.cache,
        max_age=kms.MAX_CACHE_AGE_SECONDS,
        max_messages_encrypted=kms.MAX_MESSAGES_ENCRYPTED,
        max_bytes_encrypted=kms.MAX_BYTES_ENCRYPTED,
    )
    return made


def _because(error: Exception) -> str:
    """What KMS said, which stands in the error's causes."""
    cause: BaseException | None = error
    while cause is not None and (cause.__cause__ or cause.__context__) is not None:
        cause = cause.__cause__ or cause.__context__
    return f": {cause}"[:400] if cause is not error else ""
