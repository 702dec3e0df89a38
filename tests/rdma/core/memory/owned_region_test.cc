// The order in which regions with their own buffer end, on a simulated device: no device shows it.
#include "rkv/rdma/owned_region.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/rdma/support/fake_rdma.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

using Observer = std::function<void(const void*)>;

// Reports what is freed.
template <class T>
struct ObservedAllocator {
  using value_type = T;
  explicit ObservedAllocator(const Observer* freed_elements) : freed(freed_elements) {}
  template <class U>
  ObservedAllocator(const ObservedAllocator<U>& other) : freed(other.freed) {}
  T* allocate(std::size_t count) { return std::allocator<T>().allocate(count); }
  void deallocate(T* elements, std::size_t count) {
    (*freed)(elements);
    std::allocator<T>().deallocate(elements, count);
  }
  friend bool operator==(const ObservedAllocator&, const ObservedAllocator&) = default;

  // A moved vector takes its elements with it.
  using propagate_on_container_move_assignment = std::true_type;

  const Observer* freed;
};
using ObservedBuffer = std::vector<std::uint64_t, ObservedAllocator<std::uint64_t>>;

class OwnedRegionEnds : public ::testing::Test {
 protected:
  OwnedRegionEnds() {
    fake_.on_deregister([this](const void* address) { note(address, " ends"); });
  }
  // A region over a buffer that the log calls `name`.
  OwnedRegion<ObservedBuffer> make(const std::string& name) {
    ObservedBuffer buffer(8, ObservedAllocator<std::uint64_t>(&freed_));
    names_.emplace_back(buffer.data(), name);
    return std::move(
        *OwnedRegion<ObservedBuffer>::enroll(pd_, std::move(buffer), AccessFlags::kRemoteRead));
  }
  void note(const void* address, const char* what) {
    for (const auto& [place, name] : names_)
      if (place == address) log_.push_back(name + what);
  }
  using Log = std::vector<std::string>;

  FakeRdma fake_;
  Log log_;
  std::vector<std::pair<const void*, std::string>> names_;
  Observer freed_ = [this](const void* address) { note(address, " is freed"); };
  ProtectionDomain pd_ = need(ProtectionDomain::allocate(Device::borrow(fake_.context())));
};

TEST_F(OwnedRegionEnds, TheRegistrationBeforeTheBuffer) {
  {
    const auto region = make("it");
    EXPECT_EQ(log_, Log{});
  }
  EXPECT_EQ(log_, (Log{"it ends", "it is freed"}));
}

TEST_F(OwnedRegionEnds, TheOldRegistrationBeforeItsBufferOnAnAssignment) {
  auto region = make("old");
  auto next = make("new");
  region = std::move(next);
  EXPECT_EQ(log_, (Log{"old ends", "old is freed"}));
}

TEST_F(OwnedRegionEnds, OnceForARegionThatWasMoved) {
  {
    auto first = make("it");
    const auto second = std::move(first);
    EXPECT_EQ(log_, Log{});
  }
  EXPECT_EQ(log_, (Log{"it ends", "it is freed"}));
}

TEST_F(OwnedRegionEnds, TheRegistrationAloneOnARelease) {
  {
    auto region = make("it");
    const ObservedBuffer buffer = need(std::move(region).release());
    EXPECT_EQ(log_, Log{"it ends"});
  }
  EXPECT_EQ(log_, (Log{"it ends", "it is freed"}));
}

}  // namespace
}  // namespace rkv::rdma
