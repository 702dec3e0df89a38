#include "tests/sim/network/memory.h"

#include <sys/mman.h>

#include <map>
#include <vector>

#include "common/check.h"

namespace rkv::rdma::sim {

namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kPoolBytes = std::size_t{4} << 30;
// Unused on Linux with 47-bit addresses, with and without AddressSanitizer.
constexpr std::uintptr_t kPoolAddress = 0x2000'0000'0000;

class Pool {
 public:
  Pool() {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the address is fixed
    void* const wanted = reinterpret_cast<void*>(kPoolAddress);
    void* const at = mmap(wanted, kPoolBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    RKV_CHECK(at == wanted, "the simulation's addresses are taken");
    base_ = static_cast<std::byte*>(at);
  }
  MutableBytes take(std::size_t length) {
    const std::size_t whole = round_up(length, kPageBytes);
    ++taken_;
    auto& free = free_[whole];
    if (!free.empty()) {
      std::byte* const at = free.back();
      free.pop_back();
      return {at, length};
    }
    RKV_CHECK(whole <= kPoolBytes - used_, "the simulation's memory is used up");
    std::byte* const at = base_ + used_;
    used_ += whole;
    return {at, length};
  }
  void give_back(MutableBytes memory) {
    const std::size_t whole = round_up(memory.size(), kPageBytes);
    RKV_CHECK(madvise(memory.data(), whole, MADV_DONTNEED) == 0, "madvise(2)");
    free_[whole].push_back(memory.data());
    if (--taken_ == 0) {
      free_.clear();
      used_ = 0;
    }
  }

 private:
  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
  std::size_t taken_ = 0;  // number of pieces in use
  std::map<std::size_t, std::vector<std::byte*>> free_;
};

Pool& pool() {
  static Pool pool;
  return pool;
}

}  // namespace

MutableBytes take_memory(std::size_t length) {
  return pool().take(length);
}
void give_back_memory(MutableBytes memory) {
  pool().give_back(memory);
}

}  // namespace rkv::rdma::sim
