// Operations in flight, ordered by their deadlines. The operations themselves are the nodes:
// nothing is allocated.
//
// Most operations have the client's time-out, so their deadlines come in order. These operations
// are in a list, where each costs one comparison. The others are in a pairing heap: O(log n) each,
// amortized.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <limits>

#include "rkv/async_operation.h"
#include "rkv/clock.h"

namespace rkv::client {

class Deadlines {
 public:
  static constexpr Nanos kNever = std::numeric_limits<Nanos>::max();

  // REQUIRES: the operation is in no Deadlines.
  void add(AsyncOperation& operation, Nanos at);
  // Does nothing if the operation is not in this object.
  void remove(AsyncOperation& operation);
  // Returns the earliest deadline; kNever: there are none.
  Nanos first() const {
    return std::min(first_ != nullptr ? first_->deadline_ : kNever,
                    root_ != nullptr ? root_->deadline_ : kNever);
  }
  // Removes and returns an operation whose deadline is not after `now`. Null: there is none.
  AsyncOperation* pop(Nanos now);

 private:
  using Due = AsyncOperation::Due;

  static AsyncOperation* meld(AsyncOperation* a, AsyncOperation* b);
  static AsyncOperation* meld_all(AsyncOperation* siblings);
  void remove_from_list(AsyncOperation& operation);
  void remove_from_heap(AsyncOperation& operation);

  AsyncOperation* first_ = nullptr;  // first of the list
  AsyncOperation* last_ = nullptr;
  // `previous` of a first child is its parent; that of another child is the sibling before it.
  AsyncOperation* root_ = nullptr;
};

}  // namespace rkv::client
