#include <fmt/format.h>
#include <poll.h>

#include <utility>

#include "common/check.h"
#include "rdma/transport/reopening/parts.h"

namespace rkv::rdma::reopening {

namespace {

constexpr const char* kLost = "the RDMA device was lost: try again in a moment";

class KeptIncoming final : public Incoming {
 public:
  explicit KeptIncoming(std::unique_ptr<Incoming> request) : request_(std::move(request)) {}

  Bytes private_data() const override { return request_->private_data(); }
  const std::string& peer() const override { return request_->peer(); }
  std::string called() const override { return request_->called(); }
  // The next device's queue refuses a request that came over a lost device (kNoDevice).
  Result<std::unique_ptr<Connection>> accept(Queue& queue, const ConnectionOptions& options,
                                             Bytes private_data,
                                             const Deadline& deadline) override {
    auto* const kept = dynamic_cast<KeptQueue*>(&queue);
    RKV_CHECK(kept != nullptr, "the connection and its queue belong to different transports");
    KeptQueue::Guest guest(*kept);
    Queue* const inner = guest.enter();
    // The device is lost, or the queue's thread has not yet taken the new queue.
    if (inner == nullptr) return fail(Code::kBusy, kLost);
    return request_->accept(*inner, options, private_data, deadline);
  }
  void reject(Bytes reason) override { request_->reject(reason); }

 private:
  std::unique_ptr<Incoming> request_;
};

std::string with_port(const std::string& address, std::uint16_t port) {
  return fmt::format("{}:{}", address.substr(0, address.rfind(':')), port);
}

}  // namespace

KeptListener::KeptListener(std::shared_ptr<Parts> parts, std::unique_ptr<Listener> first,
                           const std::string& address)
    : parts_(std::move(parts)),
      asked_(address),
      port_(first->port()),
      listener_(std::move(first)) {}

KeptListener::~KeptListener() {
  std::unique_ptr<Listener> ended;
  std::unique_ptr<Listener> unused;
  {
    const MutexLock lock(mutex_);
    ended = std::move(listener_);
    unused = std::move(prepared_);
    ending_ = true;  // the device must not end before these objects
  }
  ended.reset();
  unused.reset();
  parts_->remove(*this);
}

// ---- under Parts::mutex_ ----

Status KeptListener::prepare(Transport& transport) {
  {
    const MutexLock lock(mutex_);
    prepared_.reset();
  }
  auto listener = transport.listen(with_port(asked_, port()));
  // Another process may have taken the port since the last device was lost.
  if (!listener && listener.error().code == Code::kConflict && asked_.ends_with(":0"))
    listener = transport.listen(asked_);
  if (!listener) return std::unexpected(listener.error());
  port_.store((*listener)->port(), std::memory_order_relaxed);
  const MutexLock lock(mutex_);
  prepared_ = std::move(*listener);
  return {};
}

void KeptListener::offer() {
  {
    const MutexLock lock(mutex_);
    offered_ = true;
  }
  wake();
}

void KeptListener::lose() {
  std::unique_ptr<Listener> unused;
  {
    const MutexLock lock(mutex_);
    lost_ = true;
    offered_ = false;
    unused = std::move(prepared_);
  }
  wake();
}

bool KeptListener::is_empty() const {
  const MutexLock lock(mutex_);
  return listener_ == nullptr && prepared_ == nullptr && !ending_;
}

// ---- the owner's thread ----

// Returns whether there is a listener to ask.
bool KeptListener::attend() {
  std::unique_ptr<Listener> ended;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(lost_, false)) ended = std::move(listener_);
    ending_ = ended != nullptr;  // the device must not end before `ended`
    if (listener_ == nullptr && std::exchange(offered_, false)) listener_ = std::move(prepared_);
  }
  if (ended != nullptr) {
    ended.reset();
    {
      const MutexLock lock(mutex_);
      ending_ = false;
    }
    parts_->emptied();
  }
  return listener_ != nullptr;
}

void KeptListener::sleep(const Deadline& deadline) {
  pollfd waiting{.fd = idle_.fd(), .events = POLLIN, .revents = 0};
  (void)::poll(&waiting, 1, idle_.consume() ? 0 : deadline.left_ms());
  if (waiting.revents != 0) idle_.drain();
  idle_.consume();
}

Result<std::unique_ptr<Incoming>> KeptListener::next(const Deadline& deadline) {
  if (!attend()) {
    sleep(deadline);
    return std::unique_ptr<Incoming>();
  }
  auto request = listener_->next(deadline);
  if (!request && request.error().code == Code::kNoDevice) {  // lose() follows soon
    sleep(deadline);
    return std::unique_ptr<Incoming>();
  }
  if (!request) return std::unexpected(request.error());
  if (*request == nullptr) return std::unique_ptr<Incoming>();
  return std::unique_ptr<Incoming>(new KeptIncoming(std::move(*request)));
}

// ---- any thread ----

void KeptListener::wake() {
  const MutexLock lock(mutex_);
  if (listener_ != nullptr) listener_->wake();
  idle_.wake();
}

}  // namespace rkv::rdma::reopening
