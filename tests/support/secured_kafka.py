"""A real Kafka with authentication (SCRAM, certificates over TLS) and rights by principal.

Only "admin" and the broker itself have rights, until `allow` gives more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka.admin

from perseid.embedded.kafka_probe import brokers
from perseid.errors import PerseidError
from perseid.records.access import Access, Brokers
from perseid.testing.server import free_port
from perseid.topics import clients
from support.broker import KafkaServer
from support.certificates import Authority

ADMIN, ADMIN_PASSWORD = "admin", "admin-secret"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_ANSWER_S = 15.0


class SecuredKafkaServer(KafkaServer):
    """`users`: name -> password, of SCRAM. The principal of a certificate is its common name."""

    def __init__(self, folder: Path, users: Mapping[str, str]) -> None:
        super().__init__(folder)
        self.authority = Authority(folder / "certificates")
        self._users = {ADMIN: ADMIN_PASSWORD, **users}
        self._mutual = free_port()

    @property
    def bootstrap(self) -> str:
        return f"localhost:{self.port}"

    def as_user(self, user: str, password_file: Path | None = None) -> Brokers:
        """Connects with the user's password, which is written to a file."""
        file = password_file or self.folder / f"{user}.password"
        if password_file is None:
            file.write_text(self._users[user] + "\n")
        access = Access(part="KAFKA", ca=str(self.authority.ca), user=user, password_file=str(file))
        return Brokers(self.bootstrap, access)

    def as_certificate(self, name: str) -> Brokers:
        """Connects with a certificate of the name alone."""
        own = self.authority.issue(name)
        access = Access(
            part="KAFKA", ca=str(self.authority.ca), cert=str(own.cert), key=str(own.key)
        )
        return Brokers(f"localhost:{self._mutual}", access)

    def allow(self, acls: Iterable[Mapping[str, Any]]) -> None:
        """Adds the documents that `perseid jobs acls --json` prints as rules of the broker."""
        api: Any = confluent_kafka.admin
        kinds = {
            "topic": api.ResourceType.TOPIC,
            "transactional-id": api.ResourceType.TRANSACTIONAL_ID,
            "group": api.ResourceType.GROUP,
            "cluster": api.ResourceType.BROKER,  # librdkafka's name for it
        }
        bindings = [
            api.AclBinding(
                kinds[acl["resource"]],
                acl["name"],
                api.ResourcePatternType["PREFIXED" if acl["prefixed"] else "LITERAL"],
                acl["principal"],
                "*",
                api.AclOperation[_snake(operation)],
                api.AclPermissionType.ALLOW,
            )
            for acl in acls
            for operation in acl["operations"]
        ]
        admin = clients.admin(self.as_user(ADMIN))
        for future in admin.create_acls(bindings).values():
            future.result(_ANSWER_S)

    def settings(self) -> str:
        """Returns settings that override the embedded broker's; the last line of a name counts."""
        own = self.authority.issue("broker", ["localhost"])
        port, controller = self.port, self.ports["controller"]
        secured = {
            "listeners": f"SASL_SSL://localhost:{port},SSL://localhost:{self._mutual},"
            f"CONTROLLER://localhost:{controller}",
            "advertised.listeners": f"SASL_SSL://localhost:{port},SSL://localhost:{self._mutual}",
            "controller.quorum.voters": f"1@localhost:{controller}",
            "listener.security.protocol.map": "CONTROLLER:SSL,SASL_SSL:SASL_SSL,SSL:SSL",
            "inter.broker.listener.name": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": own.both,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.ca,
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": _SCRAM,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:broker;User:{ADMIN}",
        }
        return "".join(f"{name}={value}\n" for name, value in secured.items())

    def format_command(self) -> list[str]:
        added = [
            word
            for user, password in self._users.items()
            for word in ("--add-scram", f"SCRAM-SHA-512=[name={user},password={password}]")
        ]
        return [*super().format_command(), *added]

    def answers(self) -> bool:
        try:
            return brokers(self.as_user(ADMIN), 1.0) > 0
        except PerseidError:
            return False


def _snake(operation: str) -> str:
    """DescribeConfigs -> DESCRIBE_CONFIGS."""
    return "".join(f"_{c}" if c.isupper() else c.upper() for c in operation).lstrip("_")
