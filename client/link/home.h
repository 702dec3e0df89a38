// Home: the store that a client was connected to first: a replicated group, a data directory, or
// the memory of a server. The client never continues with another store, which has other keys.
//
// Invariants:
//  HOME-1  The client sends no request to a server that admit() has refused, and READs no answer
//      from it. admit() refuses each store except the first one. A server without a data directory
//      starts empty by design: only after such a server may a persistent store follow.
//
// Thread safety: all functions, any thread.
#pragma once

#include <optional>
#include <string>

#include "common/mutex.h"
#include "common/wire.h"

namespace rkv::client {

class Home {
 public:
  // kRejected: the server has another store; then `why` is a sentence.
  Status admit(const ConnectAccept& accept, std::string& why) const;
  // Call it when a connection to this admitted server can be used.
  void settle(const ConnectAccept& accept, const std::string& address);

 private:
  struct Store {
    bool in_group = false;
    std::uint32_t number = 0;
    std::string address;  // of the server that was connected to last
    bool is_volatile() const { return !in_group && number == 0; }
  };
  static std::string difference(const Store& home, const ConnectAccept& accept);

  mutable Mutex mutex_;
  std::optional<Store> store_ RKV_GUARDED_BY(mutex_){};
};

}  // namespace rkv::client
