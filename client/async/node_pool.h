// Callback nodes that have ended, for later operations.
//
// take() and give_back() never wait: who meets another thread there allocates or frees instead.
//
// Thread safety: any thread.
#pragma once

#include <atomic>
#include <utility>

#include "rkv/async_client.h"

namespace rkv::client {

class NodePool {
 public:
  NodePool() = default;
  ~NodePool() {
    while (free_ != nullptr)
      delete std::exchange(free_, free_->next_free);
  }
  NodePool(const NodePool&) = delete;
  NodePool& operator=(const NodePool&) = delete;

  // A node whose `done` calls its callback and then gives the node back.
  CallbackNode* take() {
    CallbackNode* node = nullptr;
    if (!busy_.test_and_set(std::memory_order_acquire)) {
      node = free_;
      if (node != nullptr) free_ = node->next_free;
      busy_.clear(std::memory_order_release);
    }
    if (node == nullptr) node = new CallbackNode;
    node->cancelled_.store(false, std::memory_order_relaxed);
    node->pool = this;
    node->done = [](AsyncOperation& self, const Result<Outcome>& result) {
      auto& own = static_cast<CallbackNode&>(self);
      own.stop.forget();
      own.callback(own.request, result);
      own.callback = nullptr;
      own.pool->give_back(&own);
    };
    return node;
  }
  void give_back(CallbackNode* node) {
    if (busy_.test_and_set(std::memory_order_acquire)) {
      delete node;
      return;
    }
    node->next_free = free_;
    free_ = node;
    busy_.clear(std::memory_order_release);
  }

 private:
  std::atomic_flag busy_;
  CallbackNode* free_ = nullptr;  // of who has set busy_
};

}  // namespace rkv::client
