// Pages for registered memory: of 4 KiB, 2 MiB or 1 GiB, near a NUMA node, shareable by descriptor.
//
//   RKV_ASSIGN_OR_RETURN(Pages pages, Pages::map(1 << 30, {.size = PageSize::k1GiB}));
//   log("got pages of {} bytes", pages.page_bytes());     // 1 GiB, 2 MiB or 4 KiB: what was free
//   auto region = OwnedRegion<Pages>::enroll(pd, std::move(pages), AccessFlags::kLocalWrite);
//
// A device has room for few addresses: with large pages it looks up fewer of them. Pages are zeroed
// and shared with no other allocation, so that a fork() or a neighbour cannot disturb the device's
// view of them. Thread safety: one thread at a time.
// Source: mmap(2), memfd_create(2), mbind(2).
#pragma once

#include <cstddef>
#include <cstdint>

#include "rkv/bytes.h"
#include "rkv/export.h"
#include "rkv/result.h"

namespace rkv::rdma {

enum class PageSize : unsigned char { kSmall, k2MiB, k1GiB };

struct PageOptions {
  PageSize size = PageSize::kSmall;
  // Where no pages of that size are free, the next smaller; else kOutOfMemory.
  bool fall_back = true;
  // The memory is a file without a name, whose descriptor can be sent to another process, which
  // maps the same memory by Pages::of_descriptor().
  bool shareable = false;
  // Take the memory of this node alone; -1 is wherever the kernel wants. kInvalidArgument where
  // there is no such node.
  int numa_node = -1;
};

class RKV_EXPORT Pages {
 public:
  // kInvalidArgument for a length of 0, kOutOfMemory where there is no memory (or no address) of
  // that size. Small pages are taken from the system at their first use, large ones at once.
  static Result<Pages> map(std::size_t length, const PageOptions& options = {});
  // The memory behind a descriptor that another process got by fd(). The descriptor stays the
  // caller's. kInvalidArgument where the file is shorter than `length`. That process must be
  // trusted: were it to shorten the file later, touching the memory would end this one (SIGBUS).
  static Result<Pages> of_descriptor(int fd, std::size_t length);
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  ~Pages();

  MutableBytes bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  // What the pages are that were got, to compare with what was asked for.
  std::size_t page_bytes() const { return page_bytes_; }
  // -1 where the memory is not shareable. Closed with this object.
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
