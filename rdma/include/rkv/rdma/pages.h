// Pages for registered memory: 4 KiB, 2 MiB or 1 GiB, shareable by descriptor.
//
//   RKV_ASSIGN_OR_RETURN(Pages pages, Pages::map(1 << 30, {.size = PageSize::k1GiB}));
//   log("pages of {} bytes", pages.page_bytes());     // 1 GiB, 2 MiB or 4 KiB: what was free
//   auto region = MemoryRegion::attach(pd, pages.bytes(), AccessFlags::kLocalWrite);
//
// A device caches few address translations: with large pages it needs fewer. Pages are zeroed and
// shared with no other allocation, so a fork() or a neighbouring allocation cannot change the
// device's view of them. Thread safety: one thread at a time. Source: mmap(2), memfd_create(2).
#pragma once

#include <cstddef>

#include "rkv/bytes.h"
#include "rkv/export.h"
#include "rkv/result.h"

namespace rkv::rdma {

enum class PageSize : unsigned char { kSmall, k2MiB, k1GiB };

struct PageOptions {
  PageSize size = PageSize::kSmall;
  // If no pages of that size are free, use the next smaller size; if false, kOutOfMemory.
  bool fall_back = true;
  // The memory is an anonymous file. Its descriptor can be sent to another process, which maps the
  // same memory with Pages::of_descriptor().
  bool shareable = false;
};

class RKV_EXPORT Pages {
 public:
  // Maps pages. kInvalidArgument for a length of 0; kOutOfMemory if there is not enough memory (or
  // address space). Small pages are allocated at first use, large ones at once.
  static Result<Pages> map(std::size_t length, const PageOptions& options = {});
  // Maps the memory behind a descriptor that another process obtained from fd(). The caller keeps
  // the descriptor and closes it. kInvalidArgument if the file is shorter than `length`. The other
  // process must be trusted: if it shortens the file later, an access to the memory kills this
  // process (SIGBUS).
  static Result<Pages> of_descriptor(int fd, std::size_t length);
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  ~Pages();

  MutableBytes bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  // The page size in use, which may be smaller than the one requested.
  std::size_t page_bytes() const { return page_bytes_; }
  // -1 if the memory is not shareable. The destructor closes it.
  int fd() const { return fd_; }

 private:
  Pages(MutableBytes bytes, std::size_t page_bytes, int fd)
      : bytes_(bytes), page_bytes_(page_bytes), fd_(fd) {}
  static Result<Pages> map_of(std::size_t length, std::size_t page_bytes, bool shareable);
  void release() noexcept;
  MutableBytes bytes_;
  std::size_t page_bytes_ = 0;
  int fd_ = -1;
};

}  // namespace rkv::rdma
