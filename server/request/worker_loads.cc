// Worker: requests that wait for records on disk (K7).
#include <utility>

#include "common/check.h"
#include "server/request/worker.h"

namespace rkv::server {

namespace {
// A request fails after more loads than this. Its record was evicted each time before the request's
// turn, so memory is far too small.
constexpr std::uint32_t kMaxRounds = 8;
}  // namespace

void Worker::await_load(Session& session, Bytes message, std::uint32_t receive_buffer, Bytes key,
                        std::uint32_t rounds) {
  RKV_CHECK(disk_fetcher_ != nullptr, "a store without a disk has no records there");
  awaiting_.push_back({.session = &session,
                       .message = message,
                       .receive_buffer = receive_buffer,
                       .load = disk_fetcher_->ask(key),
                       .rounds = rounds + 1,
                       .large = false,
                       .taken = taken_});
}

// True: the request is over or awaits something else. False: nothing has happened; try again later.
bool Worker::try_loaded(Awaiting& awaiting) {
  Session& session = *awaiting.session;
  if (!has_room_for_reply(session) || (awaiting.large && !has_large_for(session))) return false;
  taken_ = awaiting.taken;
  std::optional<Error> failure = awaiting.load->failure();
  if (!failure && awaiting.rounds > kMaxRounds) {
    failure = Error{.code = Code::kBusy, .text = "the server's memory is too small: try again"};
  }
  if (failure) {
    const Response response = RequestHandler::not_loaded(awaiting.message, *failure);
    (void)reply(session, response);  // cannot fail: the reply is small
    count(response);
    release(awaiting.receive_buffer);
    return true;
  }
  const Served served = serve(session, awaiting.message, awaiting.receive_buffer,
                              awaiting.load->look(), awaiting.rounds);
  if (served == Served::kDone) release(awaiting.receive_buffer);
  awaiting.large = served == Served::kNoLarge;
  return served != Served::kNoRoom && served != Served::kNoLarge;
}

void Worker::answer_loaded() {
  loading_.swap(awaiting_);  // try_loaded() may append to awaiting_
  for (Awaiting& awaiting : loading_) {
    if (awaiting.session->ending) {
      release(awaiting.receive_buffer);
      continue;
    }
    if (!awaiting.load->done() || !try_loaded(awaiting)) awaiting_.push_back(std::move(awaiting));
  }
  loading_.clear();
}

}  // namespace rkv::server
