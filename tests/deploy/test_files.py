"""The container files use only options that the programs know, and publish no port beyond this machine."""

import json
import re
import tomllib
from importlib.util import find_spec
from typing import Any

import pytest
import yaml

from bridge.settings import BridgeSettings
from broker.settings import BrokerSettings
from change_stream.settings import ChangeStreamSettings
from dashboard.settings import DashboardSettings
from demo.replica_set import ReplicaSetSettings
from spark.apps.settings import SparkSettings
from sse_ingest.settings import IngestSettings
from sse_ingest.simulator.settings import SimulatorSettings
from subscriber.stress.settings import SubscriberSettings
from tests.support.paths import ROOT
from tweetwire.runtime.program import ProgramSettings

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("tweetwire/")}
ONE_SHOTS = {"mongodb_replica_set"}
SETTINGS: dict[str, type[ProgramSettings]] = {
    "bridge_kafka": BridgeSettings,
    "bridge_nats": BridgeSettings,
    "bridge_redis": BridgeSettings,
    "message_broker": BrokerSettings,
    "change_stream": ChangeStreamSettings,
    "dashboard": DashboardSettings,
    "mongodb_replica_set": ReplicaSetSettings,
    "spark": SparkSettings,
    "sse_api": SimulatorSettings,
    "sse_ingest": IngestSettings,
    "subscriber": SubscriberSettings,
}
DEFAULT = re.compile(r"\$\{(\w+):-((?:[^{}])*)\}")
TLS: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "deploy/tls.yml").read_text())["services"]
DASHBOARD = ROOT / "deploy/grafana/dashboards/tweetwire.json"


def resolved(value: Any) -> str:
    """Replace the variables by their defaults, as Compose does for unset variables."""
    return DEFAULT.sub(r"\2", str(value))


def environment_of(service: str) -> dict[str, str]:
    return {name: resolved(value) for name, value in SERVICES[service].get("environment", {}).items()}


def words_after_python_m(service: str) -> list[str]:
    command: list[str] = SERVICES[service]["command"]
    assert command[:2] == ["python", "-m"]
    return command[2:]


@pytest.mark.parametrize("service", SETTINGS)
def test_every_variable_of_a_service_is_a_setting_of_its_program(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, *arguments = words_after_python_m(service)
    settings_type = SETTINGS[service]
    assert settings_type.model_config["cli_prog_name"] == f"python -m {module}"
    assert find_spec(module) is not None
    prefix = settings_type.model_config["env_prefix"]
    ours = {name: value for name, value in environment_of(service).items() if name.startswith("TWEETWIRE_")}
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    settings = settings_type(_cli_parse_args=arguments)
    names = {(field.alias or name): name for name, field in settings_type.model_fields.items()}
    for name, value in ours.items():
        field = names[name.removeprefix(prefix).lower()]
        assert field in settings.model_fields_set, f"{name} sets nothing"
        found = getattr(settings, field)
        if isinstance(found, list):
            assert found == json.loads(value)


def test_with_tls_each_client_of_the_broker_has_the_authority_to_trust() -> None:
    clients = {name: kind for name, kind in SETTINGS.items() if "broker" in kind.model_fields}
    for name, settings_type in clients.items():
        (variable,) = TLS[name]["environment"]
        field = variable.removeprefix(settings_type.model_config["env_prefix"]).lower()
        assert field in settings_type.model_fields, variable
        assert field.endswith("tls_ca"), variable
    assert {name for name, service in TLS.items() if "environment" in service} == {*clients, "message_broker"}


def test_with_tls_every_service_that_uses_the_files_has_them() -> None:
    assert TLS.keys() <= SERVICES.keys()
    for service in TLS.values():
        (volume,) = service["volumes"]
        assert volume["read_only"]
        assert all(path.startswith(f"{volume['target']}/") for path in service.get("environment", {}).values())


def test_every_variable_has_the_name_of_the_setting() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            for inner, _ in DEFAULT.findall(str(value)):
                assert inner == variable or inner.endswith("_PASSWORD"), name


def test_mongodb_prometheus_and_grafana_demand_a_login() -> None:
    assert any(flag.startswith("--keyFile=") for flag in SERVICES["mongodb"]["command"])
    assert environment_of("mongodb_replica_set")["TWEETWIRE_DEMO_REPLICA_SET_USER"] == "tweetwire"
    for program in ("sse_ingest", "change_stream"):
        (url,) = (value for name, value in environment_of(program).items() if name.endswith("_MONGO_URL"))
        assert url.startswith("mongodb://tweetwire:tweetwire@mongodb:"), program
    web = yaml.safe_load((ROOT / "deploy/prometheus-web.yml").read_text())
    assert web["basic_auth_users"]["tweetwire"].startswith("$2")
    assert "--web.config.file=/etc/prometheus/web.yml" in SERVICES["prometheus"]["command"]
    grafana = environment_of("grafana")
    assert "GF_AUTH_ANONYMOUS_ENABLED" not in grafana
    assert grafana["GF_SECURITY_ADMIN_PASSWORD"]


HASHED = {file.stem: file.read_text() for file in (ROOT / "deploy/hashes").glob("*.txt")}
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


def pins(text: str) -> dict[str, str]:
    """Return the version of each package in a file, by its normalised name."""
    return {name.lower().replace("_", "-").replace(".", "-"): version for name, version in PINNED.findall(text)}


@pytest.mark.parametrize("image", ["services", "spark"])
def test_an_image_installs_the_tested_versions_each_by_its_hash(image: str) -> None:
    tested, installed = pins((ROOT / "constraints.txt").read_text()), pins(HASHED[image])
    assert installed
    assert {name: version for name, version in installed.items() if tested.get(name) != version} == {}
    entries = HASHED[image].replace("\\\n", "").splitlines()
    assert all("--hash=sha256:" in entry for entry in entries if entry)
    assert "://" not in HASHED[image]


def test_each_package_of_an_image_is_in_its_file_of_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def wanted(requirements: list[str]) -> set[str]:
        found: set[str] = set()
        for requirement in requirements:
            if inner := re.fullmatch(r"tweetwire\[(.*)\]", requirement):
                found |= wanted([one for extra in inner[1].split(",") for one in extras[extra]])
            else:
                found |= {re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")}
        return found

    for image, names in {
        "services": ("broker", "bridge", "ingest", "mongo", "mock", "dashboard"),
        "spark": ("spark", "backfill"),
    }.items():
        needed = wanted(project["dependencies"]) | wanted([one for extra in names for one in extras[extra]])
        assert needed <= pins(HASHED[image]).keys(), "run make hashes"


def test_packages_are_installed_by_hash_and_listed_in_the_image() -> None:
    script = (ROOT / "deploy/install").read_text()
    assert "--require-hashes" in script
    assert "/opt/tweetwire/sbom.json" in script
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        assert "pip install" not in line or "--require-hashes" in line, line


def test_every_program_is_kept_within_bounds() -> None:
    for name, service in SERVICES.items():
        assert service["mem_limit"], name
        assert service["restart"] == ("on-failure" if name in ONE_SHOTS else "unless-stopped"), name
        assert name in ONE_SHOTS or service["healthcheck"]["test"], name
        assert service["logging"]["options"]["max-size"], name
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"]), name


def test_ports_are_published_only_on_this_machine_and_none_twice() -> None:
    published = [resolved(port) for service in SERVICES.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len({port.split(":")[1] for port in published}) == len(published)
    assert {"127.0.0.1:8000:8000", "127.0.0.1:8080:8080"} <= set(published)


def test_data_that_must_stay_is_in_a_named_volume() -> None:
    kept = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert {name for name in kept if not name.startswith("./")} == set(COMPOSE["volumes"])
    for path in (name for name in kept if name.startswith("./")):
        assert (ROOT / path).exists(), path


def test_prometheus_asks_services_of_the_stack_on_ports_that_they_open() -> None:
    jobs = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text())["scrape_configs"]
    for job in jobs:
        service, port = job["static_configs"][0]["targets"][0].split(":")
        inner = {resolved(published).rpartition(":")[2] for published in SERVICES[service]["ports"]}
        assert port in inner, job
        if service in SETTINGS and service != "spark":
            prefix, environment = SETTINGS[service].model_config["env_prefix"], environment_of(service)
            assert environment[f"{prefix}METRICS_HOST"] == "0.0.0.0"
            assert json.loads(environment[f"{prefix}METRICS_ALLOWED_HOST"]) == [service]


def test_grafana_finds_its_data_and_its_dashboard() -> None:
    provisioning = ROOT / "deploy/grafana/provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    used = set(re.findall(r'"uid": "([^"]+)"', DASHBOARD.read_text())) - {"tweetwire"}
    assert used == {source["uid"]}
    (provider,) = yaml.safe_load((provisioning / "dashboards/tweetwire.yml").read_text())["providers"]
    folder = provider["options"]["path"]
    assert f"./deploy/grafana/dashboards:{folder}:ro" in SERVICES["grafana"]["volumes"]


def test_the_images_are_built_of_every_package_and_nothing_else() -> None:
    allowed = (ROOT / ".dockerignore").read_text().split()
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"bench", "tests"}
    assert {f"!{package}" for package in packages} <= set(allowed)
    assert allowed[0] == "*"
    for line in allowed:
        if line.startswith("!"):
            assert (ROOT / line[1:]).exists(), line
