// Worker: requests that are READ because they are too long to be sent.
#include "server/request/worker.h"

namespace rkv::server {

// The request that has waited longest gets the next buffer. Without any buffers the answer is true:
// begin_long() refuses the request.
bool Worker::has_room_for_long() {
  if (long_.count() == 0) return true;
  if (!long_wanted_ && long_.free() != 0) return true;
  if (Session* const late = long_.overdue(clock_.now())) {
    drop(*late, DropReason::kOverdue);  // O5
  }
  long_wanted_ = true;
  return false;
}

// False: the caller must drop the client.
bool Worker::begin_long(Session& session, const RequestHandler::Answer& answer) {
  if (long_.count() != 0) {
    counters_.add(WorkerCounters::kLongRequests);
    return long_.begin(session, answer.message, answer.response.sequence, clock_.now());
  }
  drop_bad_long_request(session);
  return true;
}

void Worker::on_long_read(const rdma::Completion& completion, Session& session) {
  const LongRequestReader::Arrived arrived = long_.on_read(completion.context);
  const auto buffer = static_cast<std::uint32_t>(completion.context);
  if (completion.status != rdma::Completion::Status::kOk) read_failed(completion, session);
  if (session.ending || !taking_) return release(buffer);
  if (!arrived.as_announced) {
    drop_bad_long_request(session);
    return release(buffer);
  }
  taken_ = arrived.since;
  take(session, arrived.message, buffer);
}

void Worker::drop_bad_long_request(Session& session) {
  counters_.add(WorkerCounters::kMalformed);
  drop(session, DropReason::kLong);
}

}  // namespace rkv::server
