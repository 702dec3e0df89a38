// A first-in first-out list of operations. The operations themselves are the nodes: nothing is
// allocated.
//
// Thread safety: none.
#pragma once

#include <cstddef>

#include "rkv/async_operation.h"

namespace rkv::client {

class OperationList {
 public:
  bool empty() const { return first_ == nullptr; }
  std::size_t size() const { return size_; }
  AsyncOperation* first() const { return first_; }
  static AsyncOperation* next(const AsyncOperation& operation) { return operation.next_; }
  void push_back(AsyncOperation& operation) {
    operation.next_ = nullptr;
    operation.previous_ = last_;
    (last_ == nullptr ? first_ : last_->next_) = &operation;
    last_ = &operation;
    ++size_;
  }
  // REQUIRES: the operation is in this list.
  void remove(AsyncOperation& operation) {
    (operation.previous_ == nullptr ? first_ : operation.previous_->next_) = operation.next_;
    (operation.next_ == nullptr ? last_ : operation.next_->previous_) = operation.previous_;
    --size_;
  }
  AsyncOperation& pop_front() {
    AsyncOperation& operation = *first_;
    remove(operation);
    return operation;
  }

 private:
  AsyncOperation* first_ = nullptr;
  AsyncOperation* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace rkv::client
