// DoubleMapping: maps the same pages twice in sequence, so that an entry that passes the end of the
// commit log's ring is still one span of addresses.
//
// Thread safety: none for the object; the memory is the caller's to share.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

#include "rkv/result.h"

namespace rkv::server {

class DoubleMapping {
 public:
  DoubleMapping() = default;  // maps nothing
  // `bytes`: a multiple of the page size. kOutOfMemory.
  static Result<DoubleMapping> create(std::size_t bytes);
  DoubleMapping(DoubleMapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  DoubleMapping(const DoubleMapping&) = delete;
  DoubleMapping& operator=(const DoubleMapping&) = delete;
  DoubleMapping& operator=(DoubleMapping&&) = delete;
  ~DoubleMapping() {
    if (data_ != nullptr) munmap(data_, 2 * bytes_);
  }
  std::byte* data() const { return data_; }

 private:
  DoubleMapping(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace rkv::server
