#include "server/group/lane/lane_caller.h"

#include <fmt/format.h>

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/thread.h"
#include "server/group/lane/lane_request.h"

namespace rkv::server {

class LaneCaller::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, const LaneTransports& transports) : io_(io), transports_(transports) {}

  void call(const std::string& host, const LaneOffer& offer, Done done) {
    done_ = std::move(done);
    ++number_;
    if (!start())
      return tell(number_, fail(Code::kBusy, "no thread can be started that would make it"));
    {
      const MutexLock lock(mutex_);
      next_ = Call{.number = number_, .host = host, .offer = offer};
    }
    changed_.notify_one();
  }
  void cancel() { done_ = nullptr; }
  // After close() no callback follows.
  void close() {
    cancel();
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

 private:
  struct Call {
    std::uint64_t number = 0;
    std::string host;
    LaneOffer offer;
  };

  bool start() {
    if (thread_.joinable()) return true;
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }
  void run() {
    name_thread("rkv-lane-call");
    for (;;) {
      Call call;
      {
        const MutexLock lock(mutex_);
        while (!stopping_ && !next_)
          changed_.wait(mutex_);
        if (stopping_) return;
        call = *std::exchange(next_, std::nullopt);
      }
      tell(call.number, make(call));
    }
  }
  void tell(std::uint64_t number, Result<LaneParts> made) {
    // Handlers are copied, but parts cannot be copied.
    auto shared = std::make_shared<Result<LaneParts>>(std::move(made));
    asio::post(io_, [self = shared_from_this(), number, shared] {
      std::unique_ptr<ReplicaLane> lane;
      if (*shared)
        lane = std::make_unique<ReplicaLane>(self->io_, std::move(**shared), self->reaper_);
      if (number != self->number_ || !self->done_) return;
      const Done done = std::exchange(self->done_, nullptr);
      if (!lane) return done(std::unexpected(shared->error()));
      done(std::move(lane));
    });
  }
  Result<LaneParts> make(const Call& call) const {
    const Deadline deadline = Deadline::after_ms(clock_, kConnectMs);
    Result<LaneParts> made = fail(Code::kUnsupported, "the replicas have no transport in common");
    if (transports_.shm != nullptr && call.offer.shm_port != 0)
      made = connect(*transports_.shm, call, call.offer.shm_port, deadline);
    if (!made && transports_.verbs != nullptr && call.offer.verbs_port != 0)
      made = connect(*transports_.verbs, call, call.offer.verbs_port, deadline);
    return made;
  }
  Result<LaneParts> connect(rdma::Transport& transport, const Call& call, std::uint16_t port,
                            const Deadline& deadline) const {
    RKV_ASSIGN_OR_RETURN(auto parts, ReplicaLane::prepare(transport));
    rdma::Rejection rejection;
    RKV_ASSIGN_OR_RETURN(parts.connection,
                         transport.connect(*parts.queue, ReplicaLane::connection_options(),
                                           fmt::format("{}:{}", call.host, port),
                                           lane_request(call.offer.token), deadline, &rejection));
    if (!is_lane_accept(parts.connection->private_data()))
      return fail(Code::kVersionMismatch,
                  "the program that answers there is not a replica of this version");
    return parts;
  }

  asio::io_context& io_;
  const LaneTransports transports_;
  const SteadyClock clock_;
  const std::shared_ptr<LaneReaper> reaper_ = std::make_shared<LaneReaper>();
  Done done_;
  std::uint64_t number_ = 0;  // of the newest call; the io_context's thread
  std::thread thread_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::optional<Call> next_ RKV_GUARDED_BY(mutex_);
  bool stopping_ RKV_GUARDED_BY(mutex_) = false;
};

LaneCaller::LaneCaller(asio::io_context& io, const LaneTransports& transports)
    : impl_(std::make_shared<Impl>(io, transports)) {}

LaneCaller::~LaneCaller() {
  impl_->close();
}

void LaneCaller::call(const std::string& host, const LaneOffer& offer, Done done) {
  impl_->call(host, offer, std::move(done));
}

void LaneCaller::cancel() {
  impl_->cancel();
}

}  // namespace rkv::server
