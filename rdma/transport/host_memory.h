// Mappings, shared memory of a fixed size, and copying from memory that another process may be
// changing.
//
// Thread safety: a handle belongs to one thread at a time; the functions may be called by any
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "common/bytes.h"
#include "common/fd.h"
#include "rkv/result.h"

namespace rkv::rdma {

// An owned mapping.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* start, std::size_t bytes) : start_(start), bytes_(bytes) {}
  ~Mapping();
  Mapping(Mapping&& other) noexcept
      : start_(std::exchange(other.start_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(start_, other.start_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(start_); }
  std::size_t size() const { return bytes_; }
  template <class T>
  T* as(std::size_t offset = 0) const {
    return reinterpret_cast<T*>(data() + offset);
  }

 private:
  void* start_ = nullptr;
  std::size_t bytes_ = 0;
};

// Write access to a memfd after its creator has mapped it. In both cases the memory's size never
// changes again, so touching a mapping of it cannot raise SIGBUS.
enum class Sealing : std::uint8_t {
  kOthersRead,   // only the existing mapping can write it
  kOthersWrite,  // any process that gets the descriptor may map it writable
};

struct SharedMemory {
  Fd fd;
  Mapping memory;  // writable
};
// Returns how many bytes this process can still get without swapping: the minimum of the machine's
// available memory and what is left of the memory limits of our control group and its ancestors.
// Page cache, which the kernel gives up under pressure, counts as available in both. `root`: root
// of the file system; tests pass their own.
std::uint64_t available_memory(const std::string& root = "");
// Allocates zeroed memory whose pages all exist when this returns. So a lack of memory is
// kOutOfMemory here and not a signal later.
Result<SharedMemory> make_shared_memory(const char* name, std::size_t bytes, Sealing sealing);
Result<Mapping> map_private(std::size_t bytes);
// Maps a descriptor that a server passed. Refuses it unless it is memory of exactly this size,
// fixed for good.
Result<Mapping> map_received(int fd, std::size_t bytes, bool writable);

// Copies from memory that others may be writing: 8-byte loads where `from` is aligned, single bytes
// at the unaligned ends, all relaxed. Each aligned word is loaded once; the order of the words is
// not defined.
void copy_out(MutableBytes to, const std::byte* from);

// Orders loads before it ahead of loads after it. ThreadSanitizer does not support fences. There,
// atomic operations are calls that the compiler moves nothing across, on machines that keep loads
// in order.
inline void loads_before_loads() {
#if !defined(__SANITIZE_THREAD__)
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

// Access to 8-byte words in shared memory: relaxed, or another order that a comment at the call
// explains.
inline std::uint64_t load(const std::uint64_t& word, std::memory_order order) {
  return load_word(&word, order);
}
inline void store(std::uint64_t& word, std::uint64_t value, std::memory_order order) {
  store_word(&word, value, order);
}

}  // namespace rkv::rdma
