#include "client/link/user_memory.h"

#include <iterator>

namespace rkv::client {

Result<std::shared_ptr<UserBuffer>> UserMemory::allocate(std::size_t bytes, rdma::Access access) {
  if (bytes == 0) return fail(Code::kInvalidArgument, "a registered buffer has at least 1 byte");
  RKV_ASSIGN_OR_RETURN(auto region, transport_->allocate(bytes, access));
  auto buffer = std::make_shared<UserBuffer>(transport_, std::move(region));
  const MutexLock lock(mutex_);
  buffers_.emplace(buffer->bytes().data(), buffer);
  is_used_.store(true, std::memory_order_relaxed);
  return buffer;
}

void UserMemory::forget(const UserBuffer& buffer) {
  const MutexLock lock(mutex_);
  buffers_.erase(buffer.bytes().data());
}

std::shared_ptr<UserBuffer> UserMemory::find(std::span<std::byte> bytes) {
  if (!is_used_.load(std::memory_order_relaxed)) return nullptr;
  const MutexLock lock(mutex_);
  auto found = buffers_.upper_bound(bytes.data());
  if (found == buffers_.begin()) return nullptr;
  const std::shared_ptr<UserBuffer>& buffer = std::prev(found)->second;
  const std::span<std::byte> all = buffer->bytes();
  const auto offset = static_cast<std::size_t>(bytes.data() - all.data());
  const bool holds_all = offset <= all.size() && bytes.size() <= all.size() - offset;
  return holds_all ? buffer : nullptr;
}

}  // namespace rkv::client
