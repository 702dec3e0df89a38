// WaitingRequests: received requests that could not be served yet. Each keeps its receive buffer.
// Some wait for buffers (SERVE-3), others for a record on disk (SERVE-7).
//
//  SERVE-7  A request that awaits a load keeps its buffer (for a long request, one of the
//      LongRequestReader's) and changes nothing until it is handled again.
//
// Adding a request and retrying do not allocate.
//
// Thread safety: one owner, the worker.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "server/background/disk_fetcher.h"
#include "server/request/session.h"

namespace rkv::server {

struct ReceivedRequest {
  Session* session = nullptr;
  Bytes message{};
  std::uint32_t buffer = 0;  // holds the message
  Nanos taken = 0;           // when it was taken from the receive queue
};

// The result of an attempt to serve a request.
enum class Served : std::uint8_t {
  kDone,
  kNoRoom,    // nothing was executed: serve the request later
  kNoLarge,   // likewise, once ReplySender::has_large() is true
  kNextTurn,  // likewise, in another turn of the worker
  kLoading,   // the record is being loaded; the receive buffer is in use until then
  kFetching,  // the value is being READ; the receive buffer is in use until then
};

// Whether the request was not executed and waits.
constexpr bool is_for_later(Served served) {
  return served == Served::kNoRoom || served == Served::kNoLarge || served == Served::kNextTurn;
}

class WaitingRequests {
 public:
  struct Waiting {
    ReceivedRequest request;
    bool large = false;                  // it was executed, but found no large buffer for its reply
    bool awaits_turn = false;            // one of Session::packs_waiting
    std::uint32_t rounds = 0;            // how many loads it has waited for
    std::shared_ptr<const Load> load{};  // nullptr: it waits for buffers
  };

  // `capacity`: the most requests that wait at a time.
  explicit WaitingRequests(std::size_t capacity) {
    for (auto* const list : {&for_buffers_, &for_loads_, &retrying_})
      list->reserve(capacity);
  }

  void add(Waiting waiting) {
    (waiting.load == nullptr ? for_buffers_ : for_loads_).push_back(std::move(waiting));
  }
  // Both call `serve` for requests in the order of their arrival: for all that wait for buffers, or
  // for those whose load is done or whose client is ending. `serve(const Waiting&)` returns a
  // Served; a request that was not served continues to wait. `serve` may add requests that await a
  // load.
  template <class Serve>
  void retry_for_buffers(Serve serve) {
    retry(for_buffers_, serve);
  }
  template <class Serve>
  void retry_loaded(Serve serve) {
    retry(for_loads_, [&](const Waiting& waiting) {
      const bool over = waiting.load->done() || waiting.request.session->ending;
      return over ? serve(waiting) : Served::kNoRoom;
    });
  }
  // Forgets the requests of a session, or all of them (nullptr). Calls `released(buffer)` for each.
  template <class Released>
  void drop(const Session* session, Released released) {
    const auto is_dropped = [&](const Waiting& waiting) {
      if (session != nullptr && waiting.request.session != session) return false;
      released(waiting.request.buffer);
      return true;
    };
    std::erase_if(for_buffers_, is_dropped);
    std::erase_if(for_loads_, is_dropped);
  }

  bool some_for_buffers() const { return !for_buffers_.empty(); }
  bool some_for_loads() const { return !for_loads_.empty(); }

 private:
  template <class Serve>
  void retry(std::vector<Waiting>& list, Serve serve) {
    retrying_.swap(list);
    for (Waiting& waiting : retrying_) {
      const Served served = serve(waiting);
      if (!is_for_later(served)) continue;
      waiting.large = waiting.large || served == Served::kNoLarge;
      list.push_back(std::move(waiting));
    }
    retrying_.clear();
  }

  std::vector<Waiting> for_buffers_;
  std::vector<Waiting> for_loads_;
  std::vector<Waiting> retrying_;  // used during retry(); empty otherwise
};

}  // namespace rkv::server
