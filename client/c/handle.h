// A client behind a handle of C: it may be closed while threads are in its calls, and a call that
// begins later is refused.
//
// Invariants:
//  HANDLE-1  The client is destroyed when each Use that was admitted is gone. No Use is admitted
//      after that.
//
// Thread safety: any thread, apart from the destructor.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "rkv/fork.h"

namespace rkv::c {

template <class Client>
class Handle {
 public:
  explicit Handle(Client&& client) : client_(std::move(client)) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  // The client while this object lives, unless it is closed.
  class Use {
   public:
    explicit Use(Handle& handle) : handle_(handle) {
      admitted_ = (handle_.users_.fetch_add(1, std::memory_order_acquire) & kClosed) == 0;
    }
    ~Use() {
      // The closing thread may free the handle at once: notify_all() only uses the address.
      std::atomic<std::uint32_t>& users = handle_.users_;
      if (users.fetch_sub(1, std::memory_order_release) == (kClosed | 1U)) users.notify_all();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    explicit operator bool() const { return admitted_; }
    Client& operator*() const { return *handle_.client_; }
    Client* operator->() const { return &*handle_.client_; }

   private:
    Handle& handle_;
    bool admitted_;
  };

  // Returns false if it is closed, or another thread closes it. Blocks until no call uses the
  // client. REQUIRES that this thread is in none. Calls that were under way at a fork are not in
  // the child: there it does not block, and REQUIRES that no other thread is in a call.
  bool close() {
    if ((users_.fetch_or(kClosed, std::memory_order_acq_rel) & kClosed) != 0) return false;
    for (std::uint32_t users = users_.load(std::memory_order_acquire);
         users != kClosed && !made_.is_inherited(); users = users_.load(std::memory_order_acquire))
      users_.wait(users, std::memory_order_acquire);
    client_.reset();
    return true;
  }

 private:
  static constexpr std::uint32_t kClosed = std::uint32_t{1} << 31;

  const ForkGuard made_;
  std::atomic<std::uint32_t> users_ = 0;
  std::optional<Client> client_;
};

}  // namespace rkv::c
