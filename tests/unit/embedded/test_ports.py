from pathlib import Path

from perseid.embedded.ports import NAMES, ports


def test_ports_are_chosen_once_and_kept(tmp_path: Path) -> None:
    chosen = ports(tmp_path / "ports.json")
    assert set(chosen) == set(NAMES)
    assert len(set(chosen.values())) == len(NAMES)
    assert ports(tmp_path / "ports.json") == chosen


def test_ports_lie_below_those_of_outgoing_connections(tmp_path: Path) -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(1024 < port < low for port in ports(tmp_path / "ports.json").values())


def test_a_name_that_is_new_gets_another_port_than_the_kept_ones(tmp_path: Path) -> None:
    path = tmp_path / "ports.json"
    path.write_text('{"kafka": 12345}')
    found = ports(path)
    assert found["kafka"] == 12345
    assert set(found) == set(NAMES)
