#include "client/link/user_memory.h"

#include <algorithm>
#include <utility>

namespace rkv::client {

UserBuffer::UserBuffer(std::shared_ptr<UserMemory> memory, std::unique_ptr<rdma::Region> region)
    : memory_(std::move(memory)), region_(std::move(region)) {
  const MutexLock lock(memory_->mutex_);
  memory_->buffers_.push_back(this);
}

UserBuffer::~UserBuffer() {
  const MutexLock lock(memory_->mutex_);
  std::erase(memory_->buffers_, this);  // nobody enters it any more
  while (holders_ != 0)
    memory_->left_.wait(memory_->mutex_);
}

void UserBuffer::leave() {
  const MutexLock lock(memory_->mutex_);
  if (--holders_ == 0) memory_->left_.notify_all();
}

const rdma::Transport* UserBuffer::transport() const {
  return memory_->transport_.get();
}

Result<std::unique_ptr<UserBuffer>> UserMemory::allocate(std::size_t bytes, rdma::Access access) {
  if (bytes == 0) return fail(Code::kInvalidArgument, "a registered buffer has at least 1 byte");
  RKV_ASSIGN_OR_RETURN(auto region, transport_->allocate(bytes, access));
  is_used_.store(true, std::memory_order_relaxed);
  return std::make_unique<UserBuffer>(shared_from_this(), std::move(region));
}

UserBuffer* UserMemory::enter(std::span<std::byte> bytes) {
  if (!is_used_.load(std::memory_order_relaxed)) return nullptr;
  const MutexLock lock(mutex_);
  const auto holds_all = [&](const UserBuffer* buffer) {
    const std::span<std::byte> all = buffer->bytes();
    return bytes.data() >= all.data() && bytes.data() + bytes.size() <= all.data() + all.size();
  };
  const auto found = std::ranges::find_if(buffers_, holds_all);
  if (found == buffers_.end()) return nullptr;
  ++(*found)->holders_;
  return *found;
}

}  // namespace rkv::client
