"""Makes one throw-away certificate authority per cluster and the identities the components log in with.

It decides key type, lifetime and subject names. It never writes outside the directory it is given.
"""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = dt.timedelta(days=30)
_CLOCK_SKEW = dt.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Paths of a PEM certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority in a directory. EC keys: an RSA key costs more time than the API server's start."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "shardwright-harness-ca")])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            self._builder(self._subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
        )
        self.certificate = self._write("ca.crt", _pem(builder.sign(self._key, hashes.SHA256())))

    def serving(self, name: str, hosts: list[str], addresses: list[str]) -> KeyPair:
        """Issue a server certificate for DNS names and IP addresses."""
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        alternative = x509.SubjectAlternativeName(names)
        return self._issue(name, hosts[0], None, ExtendedKeyUsageOID.SERVER_AUTH, alternative)

    def client(self, name: str, user: str, group: str | None = None) -> KeyPair:
        """Issue a client certificate: the common name is the user, the organisation is the group."""
        return self._issue(name, user, group, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def signing_key(self, name: str) -> KeyPair:
        """Make a key pair that signs service account tokens; `certificate` is the bare public key."""
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return KeyPair(self._write(f"{name}.pub", public), self._write(f"{name}.key", _key_pem(key)))

    def _issue(
        self,
        name: str,
        common_name: str,
        organisation: str | None,
        usage: x509.ObjectIdentifier,
        alternative: x509.SubjectAlternativeName | None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organisation is not None:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
        builder = (
            self._builder(x509.Name(attributes), key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if alternative is not None:
            builder = builder.add_extension(alternative, critical=False)
        certificate = _pem(builder.sign(self._key, hashes.SHA256()))
        return KeyPair(self._write(f"{name}.crt", certificate), self._write(f"{name}.key", _key_pem(key)))

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        # Python's strict verification wants both key identifiers (RFC 5280).
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )

    def _write(self, name: str, content: bytes) -> Path:
        path = self._directory / name
        path.touch(mode=0o600)
        path.write_bytes(content)
        return path


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # SEC1 ("EC PRIVATE KEY") is what every Go component accepts, token signing included.
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
