#!/usr/bin/env python3
"""docker/Dockerfile, docker/compose.yml and .dockerignore by themselves: what they must have and must
not, packages that suffice for the programs, a compose file that docker-compose 1.29 takes.

    files_test.py BIN [unittest's arguments]        BIN: kvserver, kvclient and kvbench
"""

import functools
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

from dockerfile import instructions, stages

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(SOURCE, "docker"))

from store import TRANSPORTS

TARGETS = {"server": ["kvserver", "kvclient"], "client": ["kvclient"], "bench": ["kvbench"], "etcd": []}
SERVERS = ("server1", "server2", "server3")
REPLICAS = ("replica1", "replica2", "replica3")
# Of every Debian that has a C++ program.
EVERYWHERE = {"libc6", "libstdc++6", "libgcc-s1"}
# Of `./run`'s list for building: what tests, speed and the revision's name take.
NOT_FOR_IMAGES = {"ccache", "git", "libgtest-dev", "libgmock-dev", "librapidcheck-dev", "mold"}


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


def lineage(all_stages, name):
    """A stage and those that it stands on, the last first."""
    while name in all_stages:
        yield all_stages[name]
        name = all_stages[name].base


def problems_of_run(command):
    installs = re.search(r"apt-get install\b([^&]*)", command)
    if not installs:
        return
    if "--no-install-recommends" not in installs[1] or "-y" not in installs[1].split():
        yield "apt-get install wants -y --no-install-recommends"
    if "apt-get update" not in command[:installs.start()]:
        yield "apt-get update belongs into the same RUN, before install"
    if not command.endswith("rm -rf /var/lib/apt/lists/*") and "rm -rf /var/lib/apt/lists/* &&" not in command:
        yield "apt's lists are left in the layer"


def problems_of_target(all_stages, name):
    last = [stage for stage in lineage(all_stages, name)]
    users = last[0].of("USER")
    if not users or users[-1] in ("root", "0"):
        yield f"{name} runs as root"
    if not last[0].of("ENTRYPOINT") or not last[0].of("ENTRYPOINT")[-1].startswith("["):
        yield f"{name} has no ENTRYPOINT as a list, so that signals would go to a shell"
    heavy = [p for stage in last for p in stage.packages() if p.endswith("-dev") or re.match(r"g\+\+|gcc|cmake|ninja|clang", p)]
    if heavy:
        yield f"{name} has {heavy[0]}, which only building takes"


def problems(text):
    """What is wrong with a Dockerfile, a sentence each."""
    found, known = [], set()
    if re.search(r"^#\s*syntax=", text, re.MULTILINE):
        found.append("a syntax image would be fetched from a registry")
    for keyword, arguments in instructions(text):
        if keyword == "ARG" and arguments.startswith("BASE_IMAGE="):
            _, _, tag = arguments.partition(":")
            if tag in ("", "latest"):
                found.append("the base image has no fixed tag")
        if keyword == "FROM":
            base, _, name = arguments.partition(" AS ")
            if base not in {"${BASE_IMAGE}", "${PROGRAMS}"} | known:
                found.append(f"FROM {base}: only BASE_IMAGE can be had everywhere")
            known.add(name)
        if keyword == "ADD":
            found.append("ADD does more than it says: COPY")
        if keyword == "RUN":
            found += problems_of_run(arguments)
            if re.search(r"\b(sudo|curl|wget|pip3?)\b", arguments):
                found.append("only apt brings what is not in the sources")
    all_stages = stages(text)
    for name in TARGETS:
        found += problems_of_target(all_stages, name) if name in all_stages else [f"no target {name}"]
    for name in "server", "etcd":
        if name in all_stages and not all_stages[name].of("HEALTHCHECK"):
            found.append(f"{name} has no HEALTHCHECK")
    return found


@functools.lru_cache
def package_of(library):
    """The Debian package that has a shared library here."""
    done = subprocess.run(["dpkg-query", "-S", f"*/{library}"], check=True, capture_output=True, text=True)
    return next(line.split(":")[0] for line in done.stdout.splitlines() if "-linux-gnu/" in line)


def needed(program):
    """The libraries that a program names itself."""
    done = subprocess.run(["readelf", "-d", program], check=True, capture_output=True, text=True)
    return re.findall(r"\(NEEDED\).*\[(?!ld-linux)(.*)\]", done.stdout)


class Dockerfile(unittest.TestCase):
    def setUp(self):
        self.text = read("docker/Dockerfile")

    def test_has_no_problem(self):
        self.assertEqual(problems(self.text), [])

    def test_offences_are_seen(self):
        for what, by, sentence in (
                (" --no-install-recommends", "", "wants -y"),
                ("apt-get update", "true", "the same RUN"),
                ("rm -rf /var/lib/apt/lists/*", "true", "left in the layer"),
                ("debian:12-slim", "debian:latest", "fixed tag"),
                ("debian:12-slim", "debian", "fixed tag"),
                ("FROM ${BASE_IMAGE} AS runtime", "FROM alpine:3 AS runtime", "FROM alpine:3"),
                ("COPY . .", "ADD . .", "ADD"),
                ("USER rkv\n", "", "runs as root"),
                ("USER rkv\n", "USER root\n", "runs as root"),
                ('ENTRYPOINT ["kvclient"]', "ENTRYPOINT kvclient", "as a list"),
                ("librocksdb7.8", "librocksdb-dev", "only building takes"),
                ("libedit2", "libedit2 g++", "only building takes"),
                ("HEALTHCHECK", "LABEL", "server has no HEALTHCHECK"),
                ("HEALTHCHECK", "LABEL", "etcd has no HEALTHCHECK"),
                ("USER etcd\n", "", "etcd runs as root"),
                ("# Images", "# syntax=docker/dockerfile:1\n# Images", "registry"),
                ("AS client", "AS customer", "no target client"),
                ("groupadd", "wget", "only apt")):
            self.assertIn(what, self.text)
            found = problems(self.text.replace(what, by))
            self.assertTrue(any(sentence in one for one in found), f"{what!r} -> {by!r}: {found}")

    def test_packages_are_those_that_programs_need(self):
        all_stages = stages(self.text)
        for target, programs in TARGETS.items():
            has = {package for stage in lineage(all_stages, target) for package in stage.packages()}
            for program in programs:
                for library in needed(os.path.join(BIN, program)):
                    self.assertIn(package_of(library), has | EVERYWHERE, f"{target}: {program}")

    def test_compiles_with_what_run_installs(self):
        listed = re.search(r"\[build\]=\"([^\"]*)\"", read("run"))[1].split()
        self.assertEqual(set(stages(self.text)["compiled"].packages()), set(listed) - NOT_FOR_IMAGES)

    def test_the_base_image_of_the_test_has_the_packages_of_all_targets(self):
        stages_there = re.search(r"dockerfile\.py\" packages ([a-z ]*)<", read("tests/docker/parts.sh"))[1].split()
        self.assertLessEqual(set(TARGETS), set(stages_there))

    def test_context_is_what_cmake_reads(self):
        lines = [line for line in read(".dockerignore").splitlines() if line and not line.startswith("#")]
        self.assertEqual(lines[0], "*")
        allowed = {line.removeprefix("!") for line in lines[1:]}
        for name in allowed:
            self.assertTrue(os.path.exists(os.path.join(SOURCE, name)), name)
        folders = {folder.split("/")[0] for folder in
                   re.findall(r"^ *add_subdirectory\(([\w/]+)\)", read("CMakeLists.txt"), re.MULTILINE)}
        self.assertLessEqual((folders - {"tests"}) | {"CMakeLists.txt", "CMakePresets.json"}, allowed)


class ComposeFile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        parts = subprocess.run([os.path.join(HERE, "parts.sh"), "tree"], check=True, stdout=subprocess.PIPE,
                               text=True).stdout.strip()
        cls.tree = os.path.join(parts, "tree", "usr")
        sys.path.append(os.path.join(cls.tree, "lib", "python3", "dist-packages"))

    def config(self, text, **environment):
        """docker-compose 1.29's opinion of a compose file, (exit status, what it says)."""
        with tempfile.TemporaryDirectory() as scratch:
            os.mkdir(os.path.join(scratch, "docker"))
            path = os.path.join(scratch, "docker", "compose.yml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            done = subprocess.run(
                ["/usr/bin/python3", "-s", os.path.join(self.tree, "bin", "docker-compose"), "-f", path, "config"],
                check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **environment,
                     "PYTHONPATH": os.path.join(self.tree, "lib", "python3", "dist-packages")})
        return done.returncode, done.stdout if done.returncode == 0 else done.stderr

    def services(self, **environment):
        import yaml  # of docker-compose
        # Those of profiles are shown too.
        status, said = self.config(read("docker/compose.yml"), RKV_ADDRESS="192.0.2.1",
                                   COMPOSE_PROFILES="tools,group", **environment)
        self.assertEqual(status, 0, said)
        return yaml.safe_load(said)["services"]

    def test_every_service_has_what_rdma_takes_and_no_more(self):
        services = self.services()
        self.assertEqual(set(services), {*SERVERS, "loader", "bench", "etcd", *REPLICAS, "group-loader", "group-bench"})
        for name, service in services.items():
            with self.subTest(name):
                self.assertNotIn("privileged", service)
                self.assertEqual(service["network_mode"], "host")
                self.assertEqual(service["cap_drop"], ["ALL"])
                self.assertTrue(service["read_only"])
                if name == "etcd":  # which knows no RDMA
                    self.assertFalse({"devices", "cap_add", "ulimits"} & set(service))
                    continue
                self.assertEqual(service["devices"], ["/dev/infiniband"])
                self.assertEqual(service["cap_add"], ["IPC_LOCK"])
                self.assertEqual(service["ulimits"], {"memlock": -1})
                self.assertEqual(self.transports(service), {"verbs"})

    def transports(self, service):
        """Of the program, and of the health check."""
        return {value for name, value in service["environment"].items() if name.endswith("_TRANSPORT")}

    def test_without_variables_it_is_as_the_script_has_it_over_verbs(self):
        without = self.services()
        for name, service in self.services(**TRANSPORTS["verbs"]).items():
            for key in "devices", "ulimits", "environment":
                self.assertEqual(service.get(key), without[name].get(key), f"{name}: {key}")

    def test_over_tcp_every_service_runs_without_a_device_and_with_usual_limits(self):
        for name, service in self.services(**TRANSPORTS["tcp"]).items():
            with self.subTest(name):
                self.assertNotIn("infiniband", str(service))
                if name != "etcd":
                    self.assertEqual(service["devices"], ["/dev/null"])
                    self.assertEqual(service["ulimits"], {"memlock": 65536})
                    self.assertEqual(self.transports(service), {"tcp"})

    def test_over_tcp_by_hand_is_as_the_script_has_it(self):
        settings = " ".join(f"{name}={value}" for name, value in TRANSPORTS["tcp"].items())
        for path in "docker/README.md", "docker/compose.yml":
            self.assertIn(f"export RKV_ADDRESS=127.0.0.1 {settings}\n", read(path))

    def test_each_image_is_built_once(self):
        services = self.services()
        built = {name: service["build"]["target"] for name, service in services.items() if "build" in service}
        self.assertEqual(built, {"server1": "server", "loader": "client", "bench": "bench", "etcd": "etcd"})
        of_others = {"group-loader": "client", "group-bench": "bench"}
        for name, service in services.items():
            target = built.get(name) or of_others.get(name, "server")
            self.assertEqual(service["image"], f"rkv-{target}")

    def test_only_the_three_servers_start_by_themselves(self):
        services = self.services()
        self.assertEqual({name for name, service in services.items() if not service.get("profiles")}, set(SERVERS))

    def test_servers_have_time_to_end_and_logs_have_an_end(self):
        services = self.services()
        for name in *SERVERS, *REPLICAS:
            self.assertIn(services[name]["stop_grace_period"], ("5m", "5m0s"))
        for name in *SERVERS, *REPLICAS, "etcd":
            self.assertEqual(services[name]["logging"],
                             {"driver": "json-file", "options": {"max-file": "3", "max-size": "10m"}})
        by_hand = re.search(r"^    docker run (?:.*\\\n)*.*rkv-server$", read("docker/README.md"), re.MULTILINE)[0]
        self.assertIn("--stop-timeout 300", by_hand)
        self.assertIn("--log-opt max-size=10m", by_hand)

    def test_commands_by_hand_name_their_project(self):
        for path in "docker/README.md", "docker/compose.yml":
            commands = re.findall(r"docker-compose .*-f docker/compose\.yml.*", read(path))
            self.assertTrue(commands, path)
            for command in commands:
                self.assertTrue(command.startswith("docker-compose -p rkv -f "), f"{path}: {command}")

    def test_servers_have_ports_and_volumes_of_their_own(self):
        services = self.services()
        servers = [services[name] for name in SERVERS]
        listening = [server["environment"]["KVSERVER_LISTEN"] for server in servers]
        self.assertEqual(listening, ["192.0.2.1:7471", "192.0.2.1:7472", "192.0.2.1:7473"])
        pages = {server["environment"]["KVSERVER_METRICS"] for server in servers}
        self.assertEqual(pages, {"127.0.0.1:9471", "127.0.0.1:9472", "127.0.0.1:9473"})
        for tool in "loader", "bench":
            self.assertEqual(services[tool]["environment"]["KVCLIENT_SERVERS"], ",".join(listening))
        self.assertEqual(len({server["volumes"][0].split(":")[0] for server in servers}), 3)

    def test_replicas_form_one_group_and_its_clients_name_them(self):
        services = self.services()
        environments = [services[name]["environment"] for name in REPLICAS]
        listening = [environment["KVSERVER_LISTEN"] for environment in environments]
        # Replicas use the port above, so that is free.
        self.assertEqual(listening, ["192.0.2.1:7481", "192.0.2.1:7483", "192.0.2.1:7485"])
        self.assertEqual([environment["KVSERVER_METRICS"] for environment in environments],
                         ["127.0.0.1:9481", "127.0.0.1:9483", "127.0.0.1:9485"])
        self.assertEqual([environment["KVSERVER_NAME"] for environment in environments], list(REPLICAS))
        # A blank replica that founds one would be a second group.
        self.assertEqual([environment.get("KVSERVER_FOUND_GROUP") for environment in environments],
                         ["yes", None, None])
        for tool in "group-loader", "group-bench":
            self.assertEqual(services[tool]["environment"]["KVCLIENT_SERVER"], ",".join(listening))
            self.assertNotIn("KVCLIENT_SERVERS", services[tool]["environment"])  # it would outrank that
        self.assertEqual(len({services[name]["volumes"][0].split(":")[0] for name in REPLICAS}), 3)

    def test_replicas_and_the_script_find_the_groups_configuration_in_etcd(self):
        services = self.services()
        etcd = services["etcd"]["environment"]
        environments = [services[name]["environment"] for name in REPLICAS]
        self.assertEqual({environment["KVSERVER_ETCD"] for environment in environments}, {"127.0.0.1:2379"})
        self.assertEqual({etcd["ETCDCTL_ENDPOINTS"]}, {"127.0.0.1:2379"})
        for name, value in etcd.items():
            if "URLS" in name:  # nobody on the network may depose primaries
                self.assertTrue(value.startswith("http://127.0.0.1:"), f"{name}: {value}")
        (group,) = {environment["KVSERVER_GROUP"] for environment in environments}
        key = re.search(r'key_\("(.*)" \+ std::string\(group\) \+ "(.*)"\)', read("server/group/configuration/etcd_configuration_store.cc"))
        self.assertIn(f'CONFIGURATION = "{key[1]}{group}{key[2]}"', read("docker/replicated.py"))

    def test_says_that_an_address_is_wanted(self):
        status, said = self.config(read("docker/compose.yml"))
        self.assertNotEqual(status, 0)
        self.assertIn("say which IPv4 address the RDMA device has, or 127.0.0.1 for TCP", said)

    def test_a_key_of_a_later_compose_would_be_seen(self):
        text = read("docker/compose.yml")
        for later in "name: rkv\n", "include: [other.yml]\n":
            status, said = self.config(later + text, RKV_ADDRESS="192.0.2.1")
            self.assertNotEqual(status, 0, f"{later} {said}")


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    unittest.main(verbosity=2)
