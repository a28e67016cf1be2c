"""A certificate authority for a test, and certificates for 127.0.0.1 by it: PEM files, keys as PKCS #8."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CERTIFIES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Certificate:
    """Files of one certificate; `both` holds key and certificate, as Java's PEM key stores want them."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Makes certificates below a folder; `file` is its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._name = _name("test authority")
        public = self._key.public_key()
        self._issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(public)
        made = _builder(self._name, self._name, public).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        made = made.add_extension(_CERTIFIES, critical=True)
        self.file = folder / "ca.pem"
        self.file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, password: str | None = None) -> Certificate:
        """A certificate for server and client use; the key is encrypted where a password is given."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        names = x509.SubjectAlternativeName(
            [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        )
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        made = _builder(_name(name), self._name, key.public_key()).add_extension(names, critical=False)
        made = made.add_extension(usages, critical=False).add_extension(self._issuer, critical=False)
        signed = made.sign(self._key, hashes.SHA256())
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password.encode())
        pem = serialization.Encoding.PEM
        key_bytes = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, encryption)
        found = Certificate(*(self._folder / f"{name}.{kind}.pem" for kind in ("certificate", "key", "both")))
        found.certificate.write_bytes(signed.public_bytes(pem))
        found.key.write_bytes(key_bytes)
        found.both.write_bytes(key_bytes + signed.public_bytes(pem))
        return found


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, key: rsa.RSAPublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )
