// Address space for a cache: zeros, whose pages are allocated when they are first touched.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <memory>

namespace rkv::client {

class LazyMemory {
 public:
  LazyMemory() = default;
  // data() is nullptr when `bytes` is 0, or when the address space is not available.
  explicit LazyMemory(std::size_t bytes);

  void* data() const { return memory_.get(); }
  // Returns the pages to the system, so that the memory is all zeros again. False: nothing has
  // changed.
  bool give_back();

 private:
  struct Unmap {
    std::size_t length = 0;
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Unmap> memory_{nullptr, Unmap{}};
};

}  // namespace rkv::client
