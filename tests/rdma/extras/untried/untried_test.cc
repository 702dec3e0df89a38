// Device memory and import: mistakes are found before the device is asked, and a device that lacks
// the verb is refused by its name.
#include <unistd.h>

#include <array>
#include <type_traits>

#include "rkv/rdma/device_memory.h"
#include "rkv/rdma/import.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

// Handles can be moved, and never copied.
template <class T>
constexpr bool kMoveOnly = std::is_move_constructible_v<T> && !std::is_copy_constructible_v<T> &&
                           !std::is_copy_assignable_v<T>;
static_assert(kMoveOnly<DeviceMemory> && kMoveOnly<ImportedRegion>);

ProtectionDomain some_domain() {
  return need(ProtectionDomain::allocate(need(Device::open_first_active())));
}
bool is_soft_roce(const ProtectionDomain& pd) {
  return need(pd.device().attributes()).soft_roce;
}

// Either the call works or the error names the verb. SoftRoCE lacks all of them.
template <class T>
bool lacks(const Result<T>& result, const char* verb) {
  if (result) return false;
  EXPECT_EQ(result.error().code, Code::kUnsupported) << to_string(result.error());
  EXPECT_STREQ(result.error().call, verb);
  EXPECT_NE(result.error().text, nullptr);
  return true;
}

TEST(MemoryOfDevices, WorksOrIsRefusedByName) {
  const auto pd = some_domain();
  auto memory = DeviceMemory::allocate(pd.device(), 64);
  EXPECT_TRUE(lacks(memory, "ibv_alloc_dm") || !is_soft_roce(pd));
  if (!memory) return;
  need(memory->copy_in(8, as_bytes("on board")));
  std::array<std::byte, 8> back{};
  need(memory->copy_out(8, back));
  EXPECT_EQ(as_text(back), "on board");
  EXPECT_TRUE(need(memory->enroll(pd, 0, 64, AccessFlags::kRemoteRead)).bytes().empty());
}

TEST(MemoryOfDevices, MistakesAreFoundBeforeTheDeviceIsAsked) {
  const auto pd = some_domain();
  const auto expect_refused = [](const Result<DeviceMemory>& memory) {
    ASSERT_FALSE(memory);
    EXPECT_EQ(memory.error().code, Code::kInvalidArgument);
    EXPECT_EQ(memory.error().call, nullptr);
    EXPECT_NE(memory.error().text, nullptr);
  };
  expect_refused(DeviceMemory::allocate(pd.device(), 0));
  expect_refused(DeviceMemory::allocate(pd.device(), 64, 3));
}

TEST(Imports, OfWhatThisProcessHasWorkOrAreRefusedByName) {
  const auto pd = some_domain();
  const bool soft = is_soft_roce(pd);
  EXPECT_TRUE(lacks(import_domain(pd.device(), pd.raw()->handle), "ibv_import_pd") || !soft);
  const auto region = need(MemoryRegion::allocate(pd, 4096, AccessFlags::kLocalWrite));
  EXPECT_TRUE(lacks(import_region(pd, region.raw()->handle), "ibv_import_mr") || !soft);
  const int command_fd = dup(pd.device().raw()->cmd_fd);
  const auto device = import_device(command_fd);
  EXPECT_TRUE(lacks(device, "ibv_import_device") || !soft);
  if (!device) close(command_fd);
}

}  // namespace
}  // namespace rkv::rdma
