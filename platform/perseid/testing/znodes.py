"""The tree of nodes in the model of ZooKeeper: versions, owners, atomic writes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from perseid.registry.port import ANY_VERSION, Check, ConflictError, Create, Delete, Set, Write


@dataclass(frozen=True, slots=True)
class TreeNode:
    """`session`: the owner of an ephemeral node."""

    data: bytes
    version: int = 0
    session: int | None = None


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


@dataclass
class Tree:
    """Nodes by path. Not thread-safe."""

    nodes: dict[str, TreeNode] = field(default_factory=lambda: {"/": TreeNode(b"")})

    def apply(self, session: int, writes: tuple[Write, ...]) -> None:
        """Applies all writes or none, as a ZooKeeper transaction; ConflictError names the first."""
        before = dict(self.nodes)
        try:
            for write in writes:
                self._apply_one(session, write)
        except ConflictError:
            self.nodes = before
            raise

    def drop(self, session: int) -> list[str]:
        """Removes the session's ephemeral nodes; returns their paths."""
        gone = [path for path, node in self.nodes.items() if node.session == session]
        for path in gone:
            del self.nodes[path]
        return gone

    def children(self, path: str) -> tuple[str, ...]:
        prefix = path.rstrip("/") + "/"
        inside = (p.removeprefix(prefix) for p in self.nodes if p.startswith(prefix))
        return tuple(sorted(name for name in inside if name and "/" not in name))

    def _apply_one(self, session: int, write: Write) -> None:
        node = self.nodes.get(write.path)
        match write:
            case Create(path=path, data=data, ephemeral=ephemeral):
                above = self.nodes.get(parent(path))
                _require(node is None and above is not None and above.session is None, write)
                self.nodes[path] = TreeNode(data, 0, session if ephemeral else None)
            case Set(data=data, version=version):
                found = _expect(node, version, write)
                self.nodes[write.path] = replace(found, data=data, version=found.version + 1)
            case Delete(path=path, version=version):
                _expect(node, version, write)
                _require(not self.children(path), write)
                del self.nodes[path]
            case Check(version=version):
                _expect(node, version, write)


def _require(holds: bool, write: Write) -> None:
    if not holds:
        raise ConflictError(f"{type(write).__name__} {write.path}", write.path)


def _expect(node: TreeNode | None, version: int, write: Write) -> TreeNode:
    if node is None or version not in (ANY_VERSION, node.version):
        raise ConflictError(f"{type(write).__name__} {write.path}", write.path)
    return node
