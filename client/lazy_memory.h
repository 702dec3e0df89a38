// Address space for a cache: zeros, whose pages come when they are first touched.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <memory>

namespace rkv::client {

class LazyMemory {
 public:
  LazyMemory() = default;
  // data() is nullptr when `bytes` is 0, or the address space cannot be had.
  explicit LazyMemory(std::size_t bytes);

  void* data() const { return memory_.get(); }
  // All zeros again, and the pages are the system's. False: nothing has happened.
  bool give_back();

 private:
  struct Unmap {
    std::size_t length = 0;
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Unmap> memory_{nullptr, Unmap{}};
};

}  // namespace rkv::client
