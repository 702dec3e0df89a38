#include "client/async/deadlines.h"

#include <utility>

namespace rkv::client {

void Deadlines::add(AsyncOperation& operation, Nanos at) {
  operation.deadline_ = at;
  operation.due_ = {};
  operation.due_child_ = nullptr;
  if (last_ != nullptr && at < last_->deadline_) {
    operation.is_due_ = Due::kInHeap;
    root_ = meld(root_, &operation);
    return;
  }
  operation.is_due_ = Due::kInOrder;
  operation.due_.previous = last_;
  (last_ == nullptr ? first_ : last_->due_.next) = &operation;
  last_ = &operation;
}

void Deadlines::remove(AsyncOperation& operation) {
  const Due was = std::exchange(operation.is_due_, Due::kNever);
  if (was == Due::kInOrder) return remove_from_list(operation);
  if (was == Due::kInHeap) remove_from_heap(operation);
}

AsyncOperation* Deadlines::pop(Nanos now) {
  for (AsyncOperation* const earliest : {first_, root_}) {
    if (earliest == nullptr || earliest->deadline_ > now) continue;
    remove(*earliest);
    return earliest;
  }
  return nullptr;
}

void Deadlines::remove_from_list(AsyncOperation& operation) {
  const auto [next, previous] = operation.due_;
  (previous == nullptr ? first_ : previous->due_.next) = next;
  (next == nullptr ? last_ : next->due_.previous) = previous;
}

void Deadlines::remove_from_heap(AsyncOperation& operation) {
  AsyncOperation* const below = meld_all(operation.due_child_);
  if (&operation == root_) {
    root_ = below;
    return;
  }
  const auto [next, previous] = operation.due_;
  const bool is_first_child = previous->due_child_ == &operation;
  (is_first_child ? previous->due_child_ : previous->due_.next) = next;
  if (next != nullptr) next->due_.previous = previous;
  root_ = meld(root_, below);
}

// Melds two roots; either may be null.
AsyncOperation* Deadlines::meld(AsyncOperation* a, AsyncOperation* b) {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  if (b->deadline_ < a->deadline_) std::swap(a, b);
  b->due_ = {.next = a->due_child_, .previous = a};
  if (a->due_child_ != nullptr) a->due_child_->due_.previous = b;
  a->due_child_ = b;
  a->due_ = {};
  return a;
}

// Melds pairs from left to right, then the pairs from right to left: this order gives the amortized
// cost.
AsyncOperation* Deadlines::meld_all(AsyncOperation* siblings) {
  AsyncOperation* pairs = nullptr;
  while (siblings != nullptr) {
    AsyncOperation* const a = siblings;
    AsyncOperation* const b = a->due_.next;
    siblings = b == nullptr ? nullptr : b->due_.next;
    AsyncOperation* const pair = meld(a, b);
    pair->due_ = {.next = pairs, .previous = nullptr};
    pairs = pair;
  }
  AsyncOperation* melded = nullptr;
  while (pairs != nullptr) {
    AsyncOperation* const pair = pairs;
    pairs = pair->due_.next;
    pair->due_ = {};
    melded = meld(melded, pair);
  }
  return melded;
}

}  // namespace rkv::client
