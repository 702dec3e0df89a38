// kvclient doctor on real machines: over shared memory anywhere; on a SoftRoCE device with faults
// made on purpose, each of which is mended by the very command that the doctor gives.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/system/device_atomics.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

using Json = nlohmann::json;

struct Told {
  int status = 0;
  Json findings{};
  std::string output{};

  // All of that check, or those at that level.
  std::vector<Json> of(const std::string& check, const std::string& level = "") const {
    std::vector<Json> found;
    for (const Json& finding : findings) {
      const bool there = finding.at("check") == check;
      if (there && (level.empty() || finding.at("status") == level)) found.push_back(finding);
    }
    return found;
  }
  bool ok(const std::string& check) const {
    return !of(check).empty() && of(check).size() == of(check, "ok").size();
  }
  std::string found(const std::string& check) const {
    return of(check).empty() ? "" : of(check).front().at("found").get<std::string>();
  }
};

Told told(const Ended& ended) {
  Told result{.status = ended.status, .output = ended.output};
  // libibverbs may have warned before, of the limit of locked memory above all.
  const std::size_t begin = ended.output.find("[{");
  result.findings =
      Json::parse(begin == std::string::npos ? "" : ended.output.substr(begin), nullptr, false);
  EXPECT_TRUE(result.findings.is_array()) << ended.output;
  if (!result.findings.is_array()) result.findings = Json::array();
  for (const Json& finding : result.findings) {
    EXPECT_EQ(finding.at("advice").get<std::string>().empty(), finding.at("status") == "ok")
        << finding;
  }
  return result;
}

Told doctor(std::vector<std::string> arguments = {}) {
  arguments.insert(arguments.begin(),
                   {RKV_KVCLIENT, "--output", "json", "--timeout", "60s", "doctor"});
  return told(run_program(std::move(arguments), 120));
}

bool has_device() {
  std::error_code error;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", error);
  return !error && devices != std::filesystem::directory_iterator();
}

std::string absent_address() {
  return fmt::format("{}:{}", test_address(), 24999);
}

// ----------------------------------------------------------------------------- shared memory

TEST(DoctorShm, AServerOfThisHostIsMeasured) {
  Server server;
  const Told result = doctor({"--server", server.address()});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_TRUE(result.ok("shared_memory") && result.ok("server")) << result.output;
  EXPECT_NE(result.found("server").find("kvserver 0."), std::string::npos) << result.output;
  EXPECT_NE(result.found("server").find("shm"), std::string::npos) << result.output;
  EXPECT_NE(result.found("read").find("200 one-sided READs"), std::string::npos) << result.output;
}

TEST(DoctorShm, AServerThatIsNotThereIsAnErrorOnlyWhenNamed) {
  const Told named = doctor({"--server", absent_address()});
  EXPECT_EQ(named.status, 3) << named.output;
  ASSERT_EQ(named.of("server", "error").size(), 1U) << named.output;
  EXPECT_NE(named.of("server")[0].at("advice").get<std::string>().find("kvserver --listen"),
            std::string::npos);
  const Told unnamed = doctor();
  EXPECT_EQ(unnamed.status, 0) << unnamed.output;
  EXPECT_EQ(unnamed.of("server", "warning").size(), 1U) << unnamed.output;
}

TEST(DoctorShm, AnUnknownNameIsNoServerToStart) {
  // Longer than a label may be: nobody is asked.
  const Told result = doctor({"--server", std::string(70, 'x') + ":7471"});
  EXPECT_EQ(result.status, 3) << result.output;
  ASSERT_EQ(result.of("server", "error").size(), 1U) << result.output;
  const auto advice = result.of("server")[0].at("advice").get<std::string>();
  EXPECT_NE(advice.find("`getent hosts xxx"), std::string::npos) << advice;
}

TEST(DoctorShm, AMachineWithoutADeviceIsUsable) {
  if (has_device()) GTEST_SKIP() << "this machine has one; DoctorFromNothing starts without";
  const Told any = doctor({"--transport", "auto"});
  EXPECT_EQ(any.status, 0) << any.output;
  EXPECT_EQ(any.of("devices", "warning").size(), 1U) << any.output;
  EXPECT_TRUE(any.ok("shared_memory")) << any.output;
  const Told verbs = doctor({"--transport", "verbs"});
  EXPECT_EQ(verbs.status, 4) << verbs.output;
  EXPECT_EQ(verbs.of("devices", "error").size(), 1U) << verbs.output;
}

TEST(DoctorShm, EveryServerOfAListIsAsked) {
  Server one;
  Server two;
  const std::string both = one.address() + "," + two.address();
  const Told result = doctor({"--servers", both});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(result.of("read", "ok").size(), 2U) << result.output;
  const std::string port = one.address().substr(one.address().find(':'));
  const Told twice = doctor({"--servers", one.address() + ",localhost" + port});
  EXPECT_EQ(twice.status, 4) << twice.output;
  EXPECT_EQ(twice.of("servers", "error").size(), 1U) << twice.output;
  EXPECT_EQ(doctor({"--servers", both + "," + absent_address()}).status, 3);
}

TEST(DoctorShm, TextHasALineForEachAndASum) {
  Server server;
  const Ended ended = run_program({RKV_KVCLIENT, "doctor", "--server", server.address()});
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_NE(ended.output.find("ok       shared_memory: "), std::string::npos) << ended.output;
  EXPECT_NE(ended.output.find(" read " + server.address() + ": 200 one-sided READs"),
            std::string::npos)
      << ended.output;
  EXPECT_NE(ended.output.find("\nno error, "), std::string::npos) << ended.output;
  // In the shell, too.
  const Ended shell =
      run_program({"/bin/sh", "-c",
                   fmt::format("echo doctor | {} --server {}", RKV_KVCLIENT, server.address())});
  EXPECT_NE(shell.output.find("\nno error, "), std::string::npos) << shell.output;
}

TEST(DoctorShm, WrongUseIsToldAtOnce) {
  EXPECT_EQ(run_program({RKV_KVCLIENT, "doctor", "something"}).status, 2);
  EXPECT_EQ(run_program({RKV_KVCLIENT, "--output", "tsv", "doctor"}).status, 2);
  EXPECT_EQ(run_program({RKV_KVCLIENT, "doctor", "--server", "nowhere"}).status, 2);
}

// ------------------------------------------------------------------------------------- verbs

std::string rdma_device() {
  const char* name = std::getenv("RKV_RDMA_DEVICE");
  return name == nullptr ? "rxe0" : name;
}

// By the kernel's word for its adapters: they connect by address, without GIDs.
bool is_iwarp() {
  std::ifstream type("/sys/class/infiniband/" + rdma_device() + "/node_type");
  const std::string text{std::istreambuf_iterator<char>(type), {}};
  EXPECT_FALSE(text.empty()) << rdma_device();
  return text.find("RNIC") != std::string::npos;
}

Ended shell(const std::string& command) {
  return run_program({"/bin/sh", "-c", command});
}

// The first command in backquotes of a piece of advice.
std::string command_in(const Json& finding) {
  const auto advice = finding.at("advice").get<std::string>();
  const std::size_t begin = advice.find('`');
  const std::size_t end = advice.find('`', begin + 1);
  EXPECT_NE(end, std::string::npos) << advice;
  return end == std::string::npos ? "false" : advice.substr(begin + 1, end - begin - 1);
}

// Until the device is as it was: its GIDs, for one, come some time after it.
Told doctor_until_well() {
  Told result;
  for (int i = 0; i < 20; ++i) {
    result = doctor();
    if (result.status == 0 && result.ok("gid") && result.ok("loopback")) break;
  }
  return result;
}

TEST(DoctorVerbs, AHealthyMachine) {
  Server server;
  const Told result = doctor({"--server", server.address()});
  EXPECT_EQ(result.status, 0) << result.output;
  for (const char* check :
       {"devices", "modules", "device_files", "namespace", "port", "mtu", "gid", "memlock",
        "read_depth", "private_data", "timers", "loopback", "server"}) {
    EXPECT_TRUE(result.ok(check)) << check << "\n" << result.output;
  }
  const bool atomics = device_has_atomics();
  EXPECT_EQ(result.ok("atomics"), atomics) << result.output;
  EXPECT_EQ(result.of("atomics", "warning").size(), atomics ? 0U : 1U) << result.output;
  EXPECT_EQ(result.ok("failed_swap"), atomics) << result.output;
  EXPECT_NE(result.found("devices").find(rdma_device()), std::string::npos);
  const std::string gid = result.found("gid");
  if (is_iwarp()) {
    EXPECT_NE(gid.find("used: iWARP connects by IP address"), std::string::npos) << gid;
  } else {
    EXPECT_NE(gid.find(test_address()), std::string::npos) << gid;
    EXPECT_NE(gid.find("the route to the server starts there"), std::string::npos) << gid;
  }
  EXPECT_NE(result.found("private_data").find("request carries 56 bytes and its reply 196"),
            std::string::npos);
  EXPECT_NE(result.found("server").find("verbs: " + rdma_device()), std::string::npos);
  EXPECT_EQ(result.of("read", "error").size() + result.of("ping", "error").size(), 0U);
  std::printf("%s\n%s\n%s\n", result.found("loopback").c_str(), result.found("failed_swap").c_str(),
              result.found("read").c_str());
}

TEST(DoctorVerbs, TheWayToEachServer) {
  if (is_iwarp()) {  // it names no way, but its trial takes one
    Server server;
    const Told told = doctor({"--servers", "127.0.0.1:7471," + server.address()});
    EXPECT_EQ(told.of("gid", "ok").size(), 1U) << told.output;
    EXPECT_TRUE(told.ok("loopback")) << told.output;
    return;
  }
  const Told none = doctor();  // to 127.0.0.1, which no device has
  EXPECT_NE(none.found("gid").find("would be used"), std::string::npos) << none.output;
  EXPECT_NE(none.found("gid").find("no device has a route to 127.0.0.1:7471"), std::string::npos)
      << none.output;
  Server server;
  const Told both = doctor({"--servers", "127.0.0.1:7471," + server.address()});
  const auto gids = both.of("gid");
  ASSERT_GE(gids.size(), 2U) << both.output;
  const auto found = gids[0].at("found").get<std::string>();
  EXPECT_NE(found.find("is used for " + server.address()), std::string::npos) << found;
  EXPECT_NE(gids[1].at("found").get<std::string>().find("would be used"), std::string::npos);
  EXPECT_TRUE(both.ok("loopback")) << both.output;
}

TEST(DoctorVerbs, WhatWasAskedForAndIsNotThere) {
  const Told port = doctor({"--ib-port", "9"});
  EXPECT_EQ(port.status, 4) << port.output;
  EXPECT_EQ(port.of("port", "error").size(), 1U) << port.output;
  if (is_iwarp()) return;  // no GIDs to ask for
  const Told index = doctor({"--gid-index", "200"});
  EXPECT_EQ(index.status, 4) << index.output;
  ASSERT_EQ(index.of("gid", "error").size(), 1U) << index.output;
  EXPECT_NE(index.of("gid")[0].at("advice").get<std::string>().find("one of those below"),
            std::string::npos);
  EXPECT_NE(index.of("gid").back().at("found").get<std::string>().find(test_address()),
            std::string::npos);
}

std::uint64_t pinned_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::uint64_t kib = 0;
    if (std::sscanf(line.c_str(), "VmPin: %" SCNu64, &kib) == 1) return kib * 1024;
  }
  ADD_FAILURE() << "no VmPin";
  return 0;
}

TEST(DoctorVerbs, AClientRegistersWhatIsSaid) {
  Server server;
  const std::uint64_t before = pinned_bytes();
  const Client client = server.client();
  const std::uint64_t pinned = pinned_bytes() - before;
  const std::uint64_t said = Client::registered_bytes({});
  EXPECT_GE(pinned, said);
  EXPECT_LE(pinned, said + (std::uint64_t{256} << 10));  // pages that were begun
}

// ------------------------------------------------------------------------------------- faults

// They are made in the VM alone: nobody's own network is taken down.
bool may_make_faults() {
  const char* vm = std::getenv("RKV_IN_VM");
  return vm != nullptr && std::string_view(vm) == "1";
}
constexpr const char* kOnlyInTheVm =
    "faults are made in a VM of their own: ./run softroce --no-device";

// A machine on which RDMA was never set up. The first of the tests: SoftRoCE of Linux 6.1 cannot be
// relied upon to be deleted again.
TEST(DoctorFromNothing, TheDeviceComesByTheCommandThatIsGiven) {
  if (!may_make_faults()) GTEST_SKIP() << kOnlyInTheVm;
  ASSERT_FALSE(has_device()) << kOnlyInTheVm;
  const Told any = doctor({"--transport", "auto"});
  EXPECT_EQ(any.status, 0) << "shared memory works: " << any.output;
  EXPECT_EQ(any.of("devices", "warning").size(), 1U) << any.output;
  EXPECT_TRUE(any.ok("memlock") && any.ok("shared_memory")) << any.output;
  const Told ill = doctor();
  EXPECT_EQ(ill.status, 4) << ill.output;
  ASSERT_EQ(ill.of("devices", "error").size(), 1U) << ill.output;
  EXPECT_EQ(shell(command_in(ill.of("devices")[0])).status, 0);
  const Told mended = doctor_until_well();
  EXPECT_EQ(mended.status, 0) << mended.output;
  EXPECT_TRUE(mended.ok("devices") && mended.ok("modules")) << mended.output;
}

// Whatever the test before has left, the device is there and well.
class DoctorFaults : public testing::Test {
 protected:
  void SetUp() override {
    if (!may_make_faults()) GTEST_SKIP() << kOnlyInTheVm;
    shell(
        "echo /sbin/modprobe >/proc/sys/kernel/modprobe; ip link set dev dummy0 up mtu 4200; "
        "modprobe -a rdma_ucm rdma_rxe; "
        "[ -e /sys/class/infiniband/rxe0 ] || rdma link add rxe0 type rxe netdev dummy0");
    const Told result = doctor_until_well();
    ASSERT_EQ(result.status, 0) << result.output;
  }
};

TEST_F(DoctorFaults, PortDown) {
  ASSERT_EQ(shell("ip link set dev dummy0 down").status, 0);
  const Told ill = doctor();
  EXPECT_EQ(ill.status, 4) << ill.output;
  ASSERT_EQ(ill.of("port", "error").size(), 1U) << ill.output;
  EXPECT_EQ(shell(command_in(ill.of("port")[0])).status, 0);
  const Told mended = doctor_until_well();
  EXPECT_EQ(mended.status, 0) << mended.output;
  EXPECT_TRUE(mended.ok("port")) << mended.output;
}

// A kernel that may start modprobe loads the module at its first use; this one may not.
TEST_F(DoctorFaults, NoConnectionManager) {
  ASSERT_EQ(shell("modprobe -r rdma_ucm && echo /bin/false >/proc/sys/kernel/modprobe").status, 0);
  const Told ill = doctor();
  EXPECT_EQ(ill.status, 4) << ill.output;
  const auto errors = ill.of("modules", "error");
  ASSERT_EQ(errors.size(), 1U) << ill.output;
  EXPECT_EQ(errors[0].at("subject"), "rdma_ucm");
  EXPECT_EQ(shell(command_in(errors[0])).status, 0);
  const Told mended = doctor_until_well();
  EXPECT_EQ(mended.status, 0) << mended.output;
  EXPECT_TRUE(mended.ok("modules")) << mended.output;
}

// SoftRoCE's MTU follows a change of its interface's MTU, as the advice says.
TEST_F(DoctorFaults, TheMtuFollowsTheInterface) {
  ASSERT_EQ(shell("ip link set dev dummy0 mtu 1500").status, 0);
  const Told small = doctor();
  EXPECT_TRUE(small.ok("mtu")) << small.output;
  EXPECT_NE(small.found("mtu").find("1024 of at most 4096"), std::string::npos) << small.output;
  ASSERT_EQ(shell("ip link set dev dummy0 mtu 4199 && ip link set dev dummy0 mtu 4200").status, 0);
  const Told large = doctor_until_well();
  EXPECT_NE(large.found("mtu").find("4096 of at most 4096"), std::string::npos) << large.output;
}

// Devices of an exclusive kernel are in view in the namespace that has them alone.
TEST_F(DoctorFaults, AnotherNetworkNamespace) {
  ASSERT_EQ(shell("rdma system set netns exclusive").status, 0);
  const std::string inside = "mount -t sysfs sys /sys && ip link set dev lo up && ";
  const Ended ended =
      shell(fmt::format("unshare -n -m sh -c '{} exec {} --output json --transport verbs doctor'",
                        inside, RKV_KVCLIENT));
  const Told ill = told(ended);
  EXPECT_EQ(ill.status, 4) << ill.output;
  ASSERT_EQ(ill.of("namespace", "error").size(), 1U) << ill.output;
  EXPECT_EQ(ill.of("devices", "error").size(), 1U) << ill.output;
  const Told host = doctor();
  EXPECT_EQ(host.status, 0) << "with the host's network: " << host.output;
  EXPECT_NE(host.found("namespace").find("exclusive"), std::string::npos) << host.output;
  // This is not advised: the kernel refuses it while there is another namespace. A namespace ends
  // later than its last process.
  EXPECT_NE(shell("ip netns add other; rdma system set netns shared; status=$?; "
                  "ip netns del other; exit $status")
                .status,
            0);
  EXPECT_EQ(shell("for i in $(seq 100); do rdma system set netns shared && exit; sleep 0.1; done; "
                  "exit 1")
                .status,
            0);
}

// The last: SoftRoCE of Linux 6.1 cannot be deleted any more once it has refused to register
// memory.
TEST_F(DoctorFaults, NoLockedMemory) {
  // Root may lock any amount, so the capability is given up.
  const auto limited = [](const std::string& first) {
    return told(
        shell(fmt::format("prlimit --memlock=0 --pid $$; {}; exec setpriv --bounding-set=-ipc_lock "
                          "--inh-caps=-ipc_lock {} --output json doctor",
                          first, RKV_KVCLIENT)));
  };
  const Told ill = limited("true");
  EXPECT_EQ(ill.status, 4) << ill.output;
  ASSERT_EQ(ill.of("memlock", "error").size(), 1U) << ill.output;
  EXPECT_EQ(ill.of("loopback", "error").size(), 1U) << "and it is so: " << ill.output;
  const Told mended = limited(command_in(ill.of("memlock")[0]));
  EXPECT_EQ(mended.status, 0) << mended.output;
  EXPECT_TRUE(mended.ok("memlock") && mended.ok("loopback")) << mended.output;
}

}  // namespace
}  // namespace rkv::testing_support
