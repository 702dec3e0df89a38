#include "server/request/large_put_receiver.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace rkv::server {

LargePutReceiver::LargePutReceiver(RequestHandler& handler, std::size_t capacity)
    : handler_(handler), all_(capacity), free_(capacity) {}

bool LargePutReceiver::begin(Session& session, Bytes message, std::uint32_t receive_buffer,
                             RequestHandler::FetchValue value, Nanos taken, Nanos now) {
  RKV_CHECK(has_room(session), "a fetch beyond the limits");
  const auto found = std::ranges::find(all_, nullptr, &Fetch::session);
  Fetch& fetch = *found;
  fetch.session = &session;
  fetch.message = message;
  fetch.receive_buffer = receive_buffer;
  fetch.source = value.source;
  fetch.large = std::move(value.large);
  fetch.taken = taken;
  fetch.began_at = now;
  fetch.heard_at = now;
  --free_;
  ++session.fetches;
  std::uint64_t sequence = 0;
  const auto request = decode_request(message, &sequence);
  RKV_CHECK(request.has_value(), "a request that was taken before");
  fetch.hash.emplace(value_digest_seed(request->key, handler_.epoch()));
  return post(fetch);
}

// Posts READs up to kPieces. Returns false if the connection accepts no more.
bool LargePutReceiver::post(Fetch& fetch) {
  while (!fetch.failed && fetch.reads < kPieces && fetch.posted < fetch.source.length) {
    const std::size_t length = std::min(kPieceBytes, fetch.source.length - fetch.posted);
    const auto number = static_cast<std::uint64_t>(&fetch - all_.data());
    const rdma::Operation read = rdma::Operation::read(
        fetch.large.value.subspan(fetch.posted, length), fetch.large.local_key,
        fetch.source.address + fetch.posted, fetch.source.remote_key, number);
    const auto taken = fetch.session->connection->post(std::span(&read, 1));
    if (!taken || *taken == 0) {
      fetch.failed = true;
      return false;
    }
    fetch.posted += length;
    ++fetch.reads;
  }
  return true;
}

Fetch* LargePutReceiver::on_read(std::uint64_t context, bool arrived, Nanos now) {
  RKV_CHECK(context < all_.size() && all_[context].reads != 0, "a READ that nobody posted");
  Fetch& fetch = all_[context];
  --fetch.reads;
  for (Fetch& one : all_)
    if (one.session == fetch.session) one.heard_at = now;
  fetch.failed = fetch.failed || !arrived || fetch.session->ending;
  if (!fetch.failed) {  // a connection's READs complete in order, so this is the next piece
                        // (PUTLARGE-3)
    const std::size_t length = std::min(kPieceBytes, fetch.source.length - fetch.landed);
    const Bytes piece = fetch.large.value.subspan(fetch.landed, length);
    // The next piece travels while this one is hashed.
    post(fetch);
    fetch.hash->update(piece);
    if (fetch.large.copy != nullptr) {
      std::memcpy(fetch.large.copy.get() + fetch.landed, piece.data(), length);
    }
    fetch.landed += length;
  }
  return fetch.reads == 0 && (fetch.failed || fetch.complete()) ? &fetch : nullptr;
}

namespace {

bool is_overdue(const Fetch& fetch, Nanos now) {
  if (fetch.session == nullptr || fetch.awaits_disk) return false;
  constexpr Nanos kLongestRead = LargePutReceiver::kLongestRead;
  const auto pace = static_cast<double>(fetch.landed) / LargePutReceiver::kLeastPace;
  return now - fetch.heard_at >= kLongestRead ||
         now - fetch.began_at >= kLongestRead + static_cast<Nanos>(pace * kNanosPerSecond);
}

}  // namespace

Session* LargePutReceiver::overdue(Nanos now) const {
  const auto ends = [](const Fetch& fetch) {
    return fetch.session != nullptr && fetch.session->ending;
  };
  if (std::ranges::any_of(all_, ends)) return nullptr;  // a fetch is about to end
  const auto late =
      std::ranges::find_if(all_, [&](const Fetch& fetch) { return is_overdue(fetch, now); });
  return late == all_.end() ? nullptr : late->session;
}

std::optional<RequestHandler::Answer> LargePutReceiver::finish(Fetch& fetch) {
  RKV_CHECK(fetch.complete() && fetch.reads == 0 && !fetch.session->ending,
            "PUTLARGE-1, PUTLARGE-4");
  fetch.awaits_disk = handler_.awaits_disk(fetch.message, fetch.large);
  if (fetch.awaits_disk) return std::nullopt;
  const std::uint64_t digest = fetch.hash->digest();
  const Bytes message = fetch.message;
  const WriteTag tag = fetch.session->tag();
  LargePut large = std::move(fetch.large);
  clear(fetch);
  return handler_.finish(message, std::move(large), digest, tag);
}

void LargePutReceiver::drop(Fetch& fetch) {
  handler_.cancel(std::move(fetch.large));
  clear(fetch);
}

void LargePutReceiver::clear(Fetch& fetch) {
  --fetch.session->fetches;
  ++free_;
  fetch = Fetch{};
}

}  // namespace rkv::server
