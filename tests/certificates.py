"""Certificates that a test's own server shows, and that nobody else vouches for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path


def self_signed(folder: Path) -> Certificate:
    """For localhost and 127.0.0.1, valid since yesterday, whatever another process's clock says."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    addresses = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    now, day = datetime.now(UTC), timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - day).not_valid_after(now + day)
    for extension, critical in (
        (addresses, False),
        # What a strict client wants of a certificate that is trusted as its own authority.
        (x509.BasicConstraints(ca=True, path_length=None), True),
        (_signs(), True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical=critical)
    signed = builder.sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    files = Certificate(cert=folder / "cert.pem", key=folder / "key.pem")
    files.cert.write_bytes(signed.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    files.key.write_bytes(private)
    return files


def _signs() -> x509.KeyUsage:
    names = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign")
    others = dict.fromkeys((*names, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(digital_signature=True, key_cert_sign=True, **others)
