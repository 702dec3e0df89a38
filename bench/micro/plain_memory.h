// Plain memory in place of registered memory. Pages are allocated at first use.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>

#include "common/bytes.h"
#include "rdma/transport/transport.h"
#include "rkv/result.h"

namespace rkv::bench {

class PlainMemory final : public rdma::Region {
 public:
  static Result<std::unique_ptr<rdma::Region>> make(std::size_t bytes) {
    void* const at =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return fail(Code::kOutOfMemory, "mmap");
    return std::unique_ptr<rdma::Region>(new PlainMemory({static_cast<std::byte*>(at), bytes}));
  }
  ~PlainMemory() override { munmap(bytes_.data(), bytes_.size()); }
  PlainMemory(const PlainMemory&) = delete;
  PlainMemory& operator=(const PlainMemory&) = delete;
  MutableBytes bytes() const override { return bytes_; }
  std::uint32_t local_key() const override { return 1; }
  std::uint32_t remote_key() const override { return 2; }

 private:
  explicit PlainMemory(MutableBytes bytes) : bytes_(bytes) {}
  MutableBytes bytes_;
};

}  // namespace rkv::bench
