// Callback nodes that have ended, for later operations. They keep the memory of their copies of key
// and value, but not that of a large value.
//
// take() and give_back() never wait: if another thread is using the pool, they allocate or free
// instead.
//
// Thread safety: any thread.
#pragma once

#include <atomic>
#include <string>
#include <utility>

#include "common/layout.h"
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

  // Returns a node. Its `done` calls its callback, if it has one, and then gives the node back.
  CallbackNode* take() {
    CallbackNode* node = nullptr;
    if (!busy_.test_and_set(std::memory_order_acquire)) {
      node = free_;
      if (node != nullptr) free_ = node->next_free;
      busy_.clear(std::memory_order_release);
    }
    if (node == nullptr) node = new CallbackNode;
    node->fate_.store(AsyncOperation::Fate::kOpen, std::memory_order_relaxed);
    node->pool = this;
    node->done = [](AsyncOperation& self, const Result<Outcome>& result) {
      auto& own = static_cast<CallbackNode&>(self);
      own.stop.forget();
      if (own.callback) own.callback(own.request, result);
      own.pool->give_back(&own);
    };
    return node;
  }
  void give_back(CallbackNode* node) {
    node->stop.forget();
    node->callback = nullptr;
    if (is_large(node->value.capacity())) node->value = std::string();
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
  CallbackNode* free_ = nullptr;  // belongs to the thread that has set busy_
};

}  // namespace rkv::client
