// Worker: fetches of large values. Who handles a READ's completion and when a fetch is over.
#include "common/log.h"
#include "server/request/worker.h"

namespace rkv::server {

bool Worker::has_room_for(const Session& session, Bytes message) {
  if (!has_room_for_reply(session)) return false;
  if (message.empty()) return true;
  switch (static_cast<Opcode>(load_le<std::uint8_t>(message.data()))) {
    case Opcode::kPutLarge:
      return large_put_receiver_.has_room(session);
    case Opcode::kLong:
      return has_room_for_long();
    case Opcode::kStats:
      return has_time_for_stats();
    default:
      return true;
  }
}

void Worker::on_read(const rdma::Completion& completion, Session& session) {
  if (LongRequestReader::is_one(completion.context)) return on_long_read(completion, session);
  const bool arrived = completion.status == rdma::Completion::Status::kOk;
  if (!arrived) read_failed(completion, session);
  Fetch* const fetch = large_put_receiver_.on_read(completion.context, arrived);
  if (fetch == nullptr) return;
  if (!fetch->complete()) return end_fetch(*fetch);
  fetched_.push_back(fetch);
}

void Worker::read_failed(const rdma::Completion& completion, Session& session) {
  if (session.ending) return;
  if (completion.status == rdma::Completion::Status::kRemoteAccess) {
    return drop(session, DropReason::kUnreadable);
  }
  log_debug(EventName("client_memory_unreadable"),
            "client {}: its memory could not be read: {} (provider status {})",
            session.connection->peer(), rdma::to_string(completion.status),
            completion.provider_status);
  session.ending = true;  // kDisconnected follows
}

// Gives the store's block and the receive buffer back, and drops the client.
void Worker::end_fetch(Fetch& fetch) {
  drop(*fetch.session, std::nullopt);
  release(fetch.receive_buffer);
  large_put_receiver_.drop(fetch);
}

void Worker::finish_fetches() {
  if (fetched_.empty()) [[likely]]
    return;
  std::size_t kept = 0;
  for (Fetch* const fetch : fetched_) {
    Session& session = *fetch->session;
    const std::uint32_t buffer = fetch->receive_buffer;
    if (session.ending) {  // (F4)
      end_fetch(*fetch);
      continue;
    }
    if (!has_room_for_reply(session)) {
      fetched_[kept++] = fetch;
      continue;
    }
    taken_ = fetch->taken;
    const RequestHandler::Answer answer = large_put_receiver_.finish(*fetch);
    if (answer.next == RequestHandler::Next::kAwaitMark) {
      hold(session, answer);
    } else {
      (void)reply(session, answer.response);  // cannot fail: the reply is small and has room
      count(answer.response);
    }
    release(buffer);
  }
  fetched_.resize(kept);
}

}  // namespace rkv::server
