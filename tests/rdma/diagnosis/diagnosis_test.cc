// Reads the kernel's files below a root directory that the test creates.
#include "rdma/diagnosis/diagnosis.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace rkv::rdma {
namespace {

namespace fs = std::filesystem;

class Diagnosis : public testing::Test {
 public:
  Diagnosis() {
    char name[] = "/tmp/rkv-diagnosis-XXXXXX";
    root_ = mkdtemp(name);
  }
  ~Diagnosis() override { fs::remove_all(root_); }

 protected:
  void write(const std::string& path, const std::string& text) {
    const fs::path file = root_ + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  SystemFacts look() const { return look_at_system(root_); }

  std::string root_;
};

TEST_F(Diagnosis, OfNothingIsNothing) {
  const SystemFacts facts = look();
  EXPECT_TRUE(facts.devices.empty());
  EXPECT_TRUE(facts.files.empty());
  EXPECT_TRUE(facts.interfaces.empty());
  EXPECT_FALSE(facts.has_uverbs || facts.has_cm || facts.has_rxe || facts.could_have_rxe);
  EXPECT_EQ(facts.namespaces, NamespaceMode::kUnknown);
  EXPECT_EQ(facts.memlock_bytes, SystemFacts::kUnlimited);
  EXPECT_FALSE(facts.locks_any);
}

TEST_F(Diagnosis, DevicesAndTheirFiles) {
  write("/sys/class/infiniband/rxe0/parent", "eth0\n");
  write("/sys/class/infiniband/mlx5_0/device/net/ens1/mtu", "1500\n");
  write("/sys/class/infiniband/siw0/ports/1/gid_attrs/ndevs/0", "eth2\n");
  write("/sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0\n");
  write("/sys/class/infiniband_verbs/uverbs1/ibdev", "mlx5_0\n");
  write("/sys/class/infiniband_verbs/abi_version", "6\n");
  write("/sys/class/misc/rdma_cm/dev", "10:1\n");
  write("/dev/infiniband/uverbs0", "");
  const SystemFacts facts = look();
  ASSERT_EQ(facts.devices.size(), 3U);
  EXPECT_EQ(facts.devices[0].name, "mlx5_0");
  EXPECT_EQ(facts.devices[0].netdev, "ens1");
  EXPECT_EQ(facts.devices[1].netdev, "eth0");
  EXPECT_EQ(facts.devices[2].netdev, "eth2");
  EXPECT_TRUE(facts.has_uverbs && facts.has_cm) << "built in";
  ASSERT_EQ(facts.files.size(), 3U);
  EXPECT_EQ(facts.files[0].path, "/dev/infiniband/uverbs0");
  EXPECT_EQ(facts.files[0].state, FileState::kUsable);
  EXPECT_EQ(facts.files[0].device, "rxe0");
  EXPECT_EQ(facts.files[1].device, "mlx5_0");
  EXPECT_EQ(facts.files[2].device, "");
  EXPECT_EQ(facts.files[1].state, FileState::kMissing);
  EXPECT_EQ(facts.files[2].path, "/dev/infiniband/rdma_cm");
  EXPECT_EQ(facts.files[2].state, FileState::kMissing);
}

TEST_F(Diagnosis, AFileThatThisUserMayNotUse) {
  write("/sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0\n");
  write("/dev/infiniband/uverbs0", "");
  fs::permissions(root_ + "/dev/infiniband/uverbs0", fs::perms::none);
  const bool root = geteuid() == 0;  // root may use any: access(2) checks the real user
  constexpr uid_t kNobody = 65534;
  ASSERT_TRUE(!root || setresuid(kNobody, 0, 0) == 0);
  const SystemFacts facts = look();
  ASSERT_TRUE(!root || setresuid(0, 0, 0) == 0);
  ASSERT_EQ(facts.files.size(), 1U);
  EXPECT_EQ(facts.files[0].state, FileState::kForbidden);
}

TEST_F(Diagnosis, ModulesOfAKernelWhoseListIsNotHere) {
  write("/proc/sys/kernel/osrelease", "6.1.0-9-amd64\n");
  EXPECT_FALSE(look().knows_modules) << "a container";
  write("/lib/modules/6.1.0-9-amd64/modules.dep", "kernel/a.ko:\n");
  EXPECT_TRUE(look().knows_modules);
  EXPECT_FALSE(look().could_have_rxe);
  write("/lib/modules/6.1.0-9-amd64/modules.builtin",
        "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko\n");
  EXPECT_TRUE(look().could_have_rxe) << "built in";
  EXPECT_FALSE(look().could_have_cm);
}

TEST_F(Diagnosis, ModulesLoadedAndKnown) {
  write("/proc/sys/kernel/osrelease", "6.1.0-9-amd64\n");
  write("/lib/modules/6.1.0-9-amd64/modules.dep",
        "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko: kernel/a.ko\n"
        "kernel/drivers/infiniband/core/rdma_ucm.ko.xz: kernel/b.ko\n");
  SystemFacts facts = look();
  EXPECT_TRUE(facts.could_have_rxe && facts.could_have_cm);
  EXPECT_FALSE(facts.has_rxe || facts.has_cm);
  write("/sys/module/rdma_ucm/initstate", "live\n");
  write("/sys/module/ib_uverbs/initstate", "live\n");
  write("/sys/module/rdma_rxe/initstate", "live\n");
  write("/sys/module/ib_core/parameters/netns_mode", "Y\n");
  facts = look();
  EXPECT_TRUE(facts.has_rxe && facts.has_cm && facts.has_uverbs);
  EXPECT_EQ(facts.namespaces, NamespaceMode::kShared);
  write("/sys/module/ib_core/parameters/netns_mode", "N\n");
  EXPECT_EQ(look().namespaces, NamespaceMode::kExclusive);
}

TEST_F(Diagnosis, InterfacesAndTheDefaultRoute) {
  write("/sys/class/net/bonding_masters", "\n");
  write("/sys/class/net/eth0/flags", "0x1003\n");
  write("/sys/class/net/eth0/mtu", "4200\n");
  write("/sys/class/net/eth1/flags", "0x1002\n");
  write("/sys/class/net/lo/flags", "0x9\n");
  write("/proc/net/route",
        "Iface\tDestination\tGateway\tFlags\n"
        "eth1\t004DA8C0\t00000000\t0001\n"
        "eth0\t00000000\t0102A8C0\t0003\n");
  const SystemFacts facts = look();
  ASSERT_EQ(facts.interfaces.size(), 3U);
  EXPECT_EQ(facts.interfaces[0].name, "eth0");
  EXPECT_EQ(facts.interfaces[0].mtu_bytes, 4200U);
  EXPECT_TRUE(facts.interfaces[0].up && !facts.interfaces[0].loopback);
  EXPECT_FALSE(facts.interfaces[1].up);
  EXPECT_TRUE(facts.interfaces[2].up && facts.interfaces[2].loopback);
  EXPECT_EQ(facts.route_interface, "eth0");
}

TEST_F(Diagnosis, LimitsOfLockedMemory) {
  write("/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max locked memory         8388608              unlimited            bytes     \n");
  SystemFacts facts = look();
  EXPECT_EQ(facts.memlock_bytes, 8388608U);
  EXPECT_EQ(facts.memlock_most_bytes, SystemFacts::kUnlimited);
  write("/proc/self/limits", "Max locked memory         unlimited            unlimited   bytes\n");
  EXPECT_EQ(look().memlock_bytes, SystemFacts::kUnlimited);
}

TEST_F(Diagnosis, TheCapabilityCountsInTheWholeMachineOnly) {
  write("/proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n");
  write("/proc/self/uid_map", "         0          0 4294967295\n");
  EXPECT_TRUE(look().locks_any);
  write("/proc/self/uid_map", "         0     100000      65536\n");
  EXPECT_FALSE(look().locks_any) << "a user namespace";
  write("/proc/self/uid_map", "         0          0 4294967295\n");
  write("/proc/self/status", "CapEff:\t000001ffffffbfff\n");
  EXPECT_FALSE(look().locks_any) << "all capabilities but this one";
}

TEST_F(Diagnosis, WhoAsks) {
  write("/proc/self/status", "Name:\tx\nUid:\t1000\t0\t0\t0\n");
  EXPECT_TRUE(look().is_root) << "the effective one";
  write("/proc/self/status", "Name:\tx\nUid:\t0\t1000\t0\t0\n");
  EXPECT_FALSE(look().is_root);
}

TEST_F(Diagnosis, HugePages) {
  write("/proc/meminfo",
        "MemTotal: 4 kB\nHugePages_Total:      16\nHugePages_Free:        9\n"
        "Hugepagesize:       2048 kB\n");
  write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  write("/sys/kernel/mm/transparent_hugepage/shmem_enabled",
        "always within_size advise [never] deny force\n");
  const SystemFacts facts = look();
  EXPECT_EQ(facts.huge_pages, 16U);
  EXPECT_EQ(facts.free_huge_pages, 9U);
  EXPECT_EQ(facts.huge_page_bytes, std::uint64_t{2} << 20);
  EXPECT_EQ(facts.transparent_huge_pages, "madvise");
  EXPECT_EQ(facts.shared_transparent_huge_pages, "never");
}

TEST_F(Diagnosis, FilesFullOfNonsenseAreNotBelieved) {
  for (const char* path : {"/proc/self/limits", "/proc/self/status", "/proc/self/uid_map",
                           "/proc/meminfo", "/proc/net/route", "/sys/class/net/eth0/flags",
                           "/sys/kernel/mm/transparent_hugepage/enabled",
                           "/sys/module/ib_core/parameters/netns_mode"}) {
    write(path, "[[x\x01y\nMax locked memory\nCapEff:\nHugePages_Total: x");
  }
  const SystemFacts facts = look();
  EXPECT_TRUE(facts.interfaces.empty());
  EXPECT_FALSE(facts.locks_any);
  EXPECT_EQ(facts.memlock_bytes, SystemFacts::kUnlimited);
  EXPECT_EQ(facts.huge_pages, 0U);
}

TEST(PrivateDataBytes, AreCountedUntilTheFirstThatDiffers) {
  const std::string sent = "some private data";
  const auto arrived = [&](const std::string& what) {
    return arrived_bytes(as_bytes(sent), as_bytes(what));
  };
  EXPECT_EQ(arrived(sent), sent.size());
  EXPECT_EQ(arrived(sent + std::string(39, '\0')), sent.size()) << "padded";
  EXPECT_EQ(arrived(sent.substr(0, 7) + std::string(49, '\0')), 7U) << "cut off";
  EXPECT_EQ(arrived("some"), 4U);
  EXPECT_EQ(arrived("Some private data"), 0U);
  EXPECT_EQ(arrived(""), 0U);
}

TEST(ThisMachine, IsLookedAtWithoutFailing) {
  const SystemFacts facts = look_at_system();
  EXPECT_FALSE(facts.interfaces.empty());
  const VerbsFacts verbs = look_at_verbs({});
  EXPECT_TRUE(verbs.list_error.empty()) << verbs.list_error;
  EXPECT_EQ(connection_timers().rnr_retries, ConnectionTimers::kForever);
}

}  // namespace
}  // namespace rkv::rdma
