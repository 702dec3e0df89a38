// The worker's part in requests that are READ because they are too long to be sent.
#include "server/worker.h"

namespace rkv::server {

// Who waits longest gets the next buffer, not the newest. Where there are none, begin_long()
// refuses.
bool Worker::has_room_for_long() {
  if (long_.count() == 0) return true;
  if (!long_wanted_ && long_.free() != 0) return true;
  long_wanted_ = true;
  return false;
}

// False: the client is to be dropped.
bool Worker::begin_long(Session& session, const RequestHandler::Answer& answer,
                        std::uint32_t receive_buffer) {
  if (long_.count() == 0 || LongRequests::is_one(receive_buffer)) {
    counters_.add(WorkerCounters::kMalformed);
    drop(session, "it says where a request lies that it should have sent");
    return true;
  }
  return long_.begin(session, answer.message);
}

void Worker::on_long_read(const rdma::Completion& completion, Session& session) {
  const Bytes message = long_.on_read(completion.context);
  const auto buffer = static_cast<std::uint32_t>(completion.context);
  if (completion.status != rdma::Completion::Status::kOk) read_failed(completion, session);
  if (session.ending || !taking_) return release(buffer);
  take(session, message, buffer);
}

}  // namespace rkv::server
