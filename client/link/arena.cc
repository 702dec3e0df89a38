#include "client/link/arena.h"

#include <new>

#include "common/check.h"

namespace rkv::client {

namespace {
// Bytes of the GetMemory objects and of the line behind them.
std::size_t bytes_of_gets(std::size_t gets) {
  return round_up(gets * sizeof(GetMemory) + Arena::kLookBytes, 4096);
}
}  // namespace

std::size_t Arena::region_bytes(std::size_t gets, std::size_t requests) {
  return kStagingBytes + bytes_of_gets(gets) + requests * kRequestBytes +
         kLargeBuffers * kLargeBytes;
}

Result<Arena> Arena::create(rdma::Transport& transport, std::size_t gets, std::size_t requests) {
  const std::size_t gets_bytes = bytes_of_gets(gets);
  const std::size_t requests_bytes = requests * kRequestBytes;
  const std::size_t total = region_bytes(gets, requests);

  Arena arena;
  // If the server's receive buffers are short, it READs longer requests from here. Everything else
  // in this region came from the server or goes to it, so its READs reveal nothing.
  const rdma::Access access =
      transport.pins_receive_buffers() ? rdma::Access::kRemoteRead : rdma::Access::kLocal;
  RKV_ASSIGN_OR_RETURN(arena.region_, transport.allocate(total, access));
  const MutableBytes all = arena.region_->bytes();
  RKV_CHECK(all.size() >= total, "the transport allocated too little");
  arena.staging_ = all.first(kStagingBytes);
  std::byte* const memory = all.data() + kStagingBytes;
  arena.gets_ = reinterpret_cast<GetMemory*>(memory);
  for (std::size_t i = 0; i < gets; ++i)
    ::new (memory + i * sizeof(GetMemory)) GetMemory;
  arena.look_ = {memory + gets * sizeof(GetMemory), kLookBytes};
  arena.requests_ = all.subspan(kStagingBytes + gets_bytes, requests_bytes);
  const MutableBytes large = all.subspan(kStagingBytes + gets_bytes + requests_bytes);
  for (std::size_t i = 0; i < kLargeBuffers; ++i) {
    arena.free_large_.push_back(large.subspan(i * kLargeBytes, kLargeBytes));
  }
  return arena;
}

MutableBytes Arena::take_large() {
  if (free_large_.empty()) return {};
  const MutableBytes large = free_large_.back();
  free_large_.pop_back();
  return large;
}

void Arena::give_back_large(MutableBytes large) {
  // create() reserved the capacity for all buffers: never allocates.
  if (!large.empty()) free_large_.push_back(large);
}

}  // namespace rkv::client
