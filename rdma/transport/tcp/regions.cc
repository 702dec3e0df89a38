#include "rdma/transport/tcp/regions.h"

#include <mutex>

#include "common/random.h"

namespace rkv::rdma::tcp {

std::uint32_t Regions::add(MutableBytes memory, Access access) {
  const std::unique_lock lock(mutex_);
  for (;;) {
    const auto key = static_cast<std::uint32_t>(random_from_kernel());
    if (key != 0 && entries_.try_emplace(key, Entry{.memory = memory, .access = access}).second)
      return key;
  }
}

void Regions::remove(std::uint32_t key) {
  const std::unique_lock lock(mutex_);
  entries_.erase(key);
}

std::byte* Regions::Held::at(const Target& target, std::uint64_t length, Access wanted,
                             Access granted) const {
  const auto found = regions_.entries_.find(target.key);
  if (found == regions_.entries_.end()) return nullptr;
  const Entry& entry = found->second;
  if (wanted > entry.access || wanted > granted) return nullptr;
  const auto begin = reinterpret_cast<std::uint64_t>(entry.memory.data());
  const std::uint64_t size = entry.memory.size();
  if (target.address < begin || length > size || target.address - begin > size - length)
    return nullptr;
  return entry.memory.data() + (target.address - begin);
}

}  // namespace rkv::rdma::tcp
