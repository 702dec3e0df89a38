#include "rkv/rdma/message/memory_transport.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <vector>

#include "common/check.h"
#include "common/mutex.h"
#include "rdma/extras/message/link.h"
#include "rdma/extras/message/transport_of.h"

namespace rkv::rdma {
namespace detail {

// One end's state, used by both sides under the link's mutex.
struct MemoryEnd {
  enum class Place : unsigned char { kFree, kWaiting, kLent };
  struct Slot {
    std::vector<std::byte> bytes;
    std::size_t length = 0;
    Place place = Place::kFree;
  };
  MemoryOptions options;
  SocketAddress address;
  Descriptor wake;
  bool asleep = false;
  bool closed = false;
  bool refused = false;
  std::size_t in_flight = 0;  // this end's sends that it has not reaped
  std::vector<Slot> slots;    // incoming messages
  std::deque<std::uint32_t> waiting;

  void rouse() {
    if (!std::exchange(asleep, false)) return;
    const std::uint64_t one = 1;
    std::ignore = ::write(wake.get(), &one, sizeof one);  // fails only if it is readable anyway
  }
  std::uint32_t free_slot() const {
    const auto found = std::ranges::find(slots, Place::kFree, &Slot::place);
    return static_cast<std::uint32_t>(found - slots.begin());
  }
};

struct MemoryLink {
  Mutex mutex;  // guards the changing fields of the ends
  std::array<MemoryEnd, 2> ends;

  bool dead() const RKV_REQUIRES(mutex) { return ends[0].closed || ends[1].closed; }
  std::size_t max_message() const {
    return std::min(ends[0].options.message_bytes, ends[1].options.message_bytes);
  }
  bool room(unsigned side) const RKV_REQUIRES(mutex) {
    const MemoryEnd& to = ends[1 - side];
    return ends[side].in_flight < ends[side].options.send_buffers &&
           to.free_slot() < to.slots.size();
  }
};

// A connect() call that waits for its accept().
struct MemoryCall {
  MemoryOptions options;
  std::shared_ptr<MemoryLink> answered;
  bool refused = false;
};

struct MemoryPort {
  std::shared_ptr<MemoryNetwork> network;
  SocketAddress address;
  std::deque<std::shared_ptr<MemoryCall>> calls;
};

struct MemoryNetwork {
  Mutex mutex;
  ConditionVariable changed;
  std::map<std::uint16_t, std::weak_ptr<MemoryPort>> ports RKV_GUARDED_BY(mutex);
  std::uint16_t next_port RKV_GUARDED_BY(mutex) = 40000;

  // Returns false if the deadline passed first. The deadline may use any clock, so it is checked
  // after short waits.
  template <class Condition>
  bool wait(const Deadline& deadline, Condition condition) RKV_REQUIRES(mutex) {
    while (!condition()) {
      if (deadline.passed()) return false;
      changed.wait_for(mutex, std::chrono::milliseconds(std::clamp(deadline.left_ms(), 1, 10)));
    }
    return true;
  }
};

namespace {

Status validate(const MemoryOptions& options) {
  if (options.message_bytes == 0 || options.message_bytes > (1U << 24)) {
    return fail(Code::kInvalidArgument, "message_bytes is from 1 to 16777216");
  }
  if (options.send_buffers == 0 || options.send_buffers > 8192) {
    return fail(Code::kInvalidArgument, "send_buffers is from 1 to 8192");
  }
  if (options.receive_buffers == 0 || options.receive_buffers > 8192) {
    return fail(Code::kInvalidArgument, "receive_buffers is from 1 to 8192");
  }
  return {};
}

SocketAddress address_of(std::uint16_t port) {
  sockaddr_in raw{};
  raw.sin_family = AF_INET;
  raw.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  raw.sin_port = htons(port);
  return SocketAddress::from(reinterpret_cast<const sockaddr*>(&raw));
}

Result<std::shared_ptr<MemoryLink>> make_link(const MemoryOptions& a, const MemoryOptions& b) {
  auto link = std::make_shared<MemoryLink>();
  for (unsigned side = 0; side < 2; ++side) {
    MemoryEnd& end = link->ends[side];
    end.options = side == 0 ? a : b;
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    RKV_RETURN_IF_ERROR(from_minus_one("eventfd", fd));
    end.wake = Descriptor(fd);
    end.slots.resize(end.options.receive_buffers);
    end.address = address_of(static_cast<std::uint16_t>(side + 1));
  }
  return link;
}

}  // namespace

// One end of a link. Its destructor ends the connection.
class MemoryState {
 public:
  MemoryState(std::shared_ptr<MemoryLink> link, unsigned side)
      : link_(std::move(link)), side_(side) {}
  MemoryState(const MemoryState&) = delete;
  MemoryState& operator=(const MemoryState&) = delete;
  ~MemoryState() { std::ignore = disconnect(); }

  Result<std::size_t> send(std::span<const Bytes> pieces);
  Result<std::size_t> poll_sends();
  Result<std::size_t> poll_receives(std::span<Received> out);
  Bytes view(std::uint32_t index) const;
  Status release(std::uint32_t index);
  bool poll_disconnect();
  Status disconnect();
  Result<bool> arm(Interest interest);
  SocketAddress local_address() const { return link_->ends[side_].address; }
  SocketAddress peer_address() const { return link_->ends[1 - side_].address; }
  std::size_t max_message() const { return link_->max_message(); }
  std::size_t in_flight() const {
    const MutexLock lock(link_->mutex);
    return link_->ends[side_].in_flight;
  }
  std::size_t window() const { return link_->ends[side_].options.receive_buffers; }
  int fd() const { return link_->ends[side_].wake.get(); }

 private:
  std::shared_ptr<MemoryLink> link_;
  unsigned side_;
};

Result<std::size_t> MemoryState::send(std::span<const Bytes> pieces) {
  const MutexLock lock(link_->mutex);
  MemoryEnd& self = link_->ends[side_];
  MemoryEnd& peer = link_->ends[1 - side_];
  if (self.closed) return fail(Code::kDisconnected, "the transport was disconnected");
  if (peer.closed) return fail(Code::kDisconnected, "the peer has disconnected");
  self.refused = !link_->room(side_);
  if (self.refused) return 0U;
  const std::uint32_t index = peer.free_slot();
  MemoryEnd::Slot& slot = peer.slots[index];
  slot.bytes.clear();
  for (const Bytes piece : pieces) {
    const Bytes part =
        piece.first(std::min(piece.size(), link_->max_message() - slot.bytes.size()));
    slot.bytes.insert(slot.bytes.end(), part.begin(), part.end());
  }
  if (slot.bytes.empty()) return fail(Code::kInvalidArgument, "a message has at least one byte");
  slot.length = slot.bytes.size();
  slot.place = MemoryEnd::Place::kWaiting;
  peer.waiting.push_back(index);
  ++self.in_flight;
  peer.rouse();
  return slot.length;
}

Result<std::size_t> MemoryState::poll_sends() {
  const MutexLock lock(link_->mutex);
  return std::exchange(link_->ends[side_].in_flight, 0U);
}

Result<std::size_t> MemoryState::poll_receives(std::span<Received> out) {
  const MutexLock lock(link_->mutex);
  MemoryEnd& self = link_->ends[side_];
  std::size_t count = 0;
  for (; count < out.size() && !self.waiting.empty(); ++count) {
    const std::uint32_t index = self.waiting.front();
    self.waiting.pop_front();
    self.slots[index].place = MemoryEnd::Place::kLent;
    out[count] = {.index = index, .length = static_cast<std::uint32_t>(self.slots[index].length)};
  }
  return count;
}

Bytes MemoryState::view(std::uint32_t index) const {
  const MutexLock lock(link_->mutex);
  const MemoryEnd& self = link_->ends[side_];
  RKV_CHECK(index < self.slots.size() && self.slots[index].place == MemoryEnd::Place::kLent,
            "view() of a message that is not held");
  return self.slots[index].bytes;
}

Status MemoryState::release(std::uint32_t index) {
  const MutexLock lock(link_->mutex);
  MemoryEnd& self = link_->ends[side_];
  RKV_CHECK(index < self.slots.size() && self.slots[index].place == MemoryEnd::Place::kLent,
            "release() of a message that is not held");
  self.slots[index].place = MemoryEnd::Place::kFree;
  link_->ends[1 - side_].rouse();
  return {};
}

bool MemoryState::poll_disconnect() {
  const MutexLock lock(link_->mutex);
  return link_->dead();
}

Status MemoryState::disconnect() {
  const MutexLock lock(link_->mutex);
  link_->ends[side_].closed = true;
  link_->ends[1 - side_].rouse();
  return {};
}

Result<bool> MemoryState::arm(Interest interest) {
  const MutexLock lock(link_->mutex);
  MemoryEnd& self = link_->ends[side_];
  std::uint64_t old = 0;
  // The descriptor does not block: the call fails if there is nothing to clear.
  // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection)
  std::ignore = ::read(self.wake.get(), &old, sizeof old);
  if (link_->dead()) return false;
  if (has(interest, Interest::kMessages) && !self.waiting.empty()) return false;
  if (has(interest, Interest::kRoom) && self.refused && link_->room(side_)) return false;
  // Sends complete at once in this transport, so a waiter for space must reap them.
  if (self.in_flight != 0 && (interest & (Interest::kRoom | Interest::kSent)) != Interest::kNone) {
    return false;
  }
  self.asleep = true;
  return true;
}

}  // namespace detail

template class TransportOf<detail::MemoryState>;

MemoryTransport::MemoryTransport(std::unique_ptr<detail::MemoryState> state)
    : TransportOf(std::move(state)) {}

std::pair<MemoryTransport, MemoryTransport> MemoryTransport::pair(const MemoryOptions& options) {
  const Status valid = detail::validate(options);
  RKV_CHECK(valid, "an option of MemoryTransport::pair() is out of its range");
  auto link = detail::make_link(options, options);
  RKV_CHECK(link, "no file descriptor is left for a pair of transports");
  return {MemoryTransport(std::make_unique<detail::MemoryState>(*link, 0)),
          MemoryTransport(std::make_unique<detail::MemoryState>(*link, 1))};
}

detail::MemoryPort& MemoryListener::port() const {
  RKV_CHECK(port_ != nullptr, "the listener was moved from");
  return *port_;
}

SocketAddress MemoryListener::address() const {
  return port().address;
}

MemoryListener::~MemoryListener() {
  if (!port_) return;
  detail::MemoryNetwork& network = *port_->network;
  {
    const MutexLock lock(network.mutex);
    network.ports.erase(port_->address.port());
    for (const auto& call : port_->calls)
      call->refused = true;
  }
  network.changed.notify_all();
}

MemoryBuilder::MemoryBuilder() : MemoryBuilder(MemoryOptions{}) {}
MemoryBuilder::MemoryBuilder(const MemoryOptions& with)
    : options(with), network_(std::make_shared<detail::MemoryNetwork>()) {}

Result<MemoryListener> MemoryBuilder::listen(const SocketAddress& local) const {
  const MutexLock lock(network_->mutex);
  std::uint16_t port = local.port();
  while (port == 0 || (local.port() == 0 && network_->ports.contains(port)))
    port = network_->next_port++;
  if (network_->ports.contains(port)) return fail(Code::kConflict, "the port is taken");
  auto made = std::make_shared<detail::MemoryPort>();
  made->network = network_;
  made->address = detail::address_of(port);
  network_->ports[port] = made;
  return MemoryListener(std::move(made));
}

Result<MemoryTransport> MemoryBuilder::connect(const SocketAddress& peer,
                                               const Deadline& deadline) const {
  RKV_RETURN_IF_ERROR(detail::validate(options));
  auto call = std::make_shared<detail::MemoryCall>();
  call->options = options;
  const MutexLock lock(network_->mutex);
  const auto found = network_->ports.find(peer.port());
  const auto port = found == network_->ports.end() ? nullptr : found->second.lock();
  if (!port) return fail(Code::kUnreachable, "nobody listens on this address and port");
  port->calls.push_back(call);
  network_->changed.notify_all();
  const bool done = network_->wait(deadline, [&] { return call->answered || call->refused; });
  if (call->answered)
    return MemoryTransport(std::make_unique<detail::MemoryState>(call->answered, 0));
  std::erase(port->calls, call);
  if (!done) return fail(Code::kTimeout, "the peer did not answer before the deadline");
  return fail(Code::kUnreachable, "the listener was closed");
}

Result<MemoryTransport> MemoryBuilder::accept(MemoryListener& listener,
                                              const Deadline& deadline) const {
  RKV_RETURN_IF_ERROR(detail::validate(options));
  auto& calls = listener.port().calls;
  const MutexLock lock(network_->mutex);
  if (!network_->wait(deadline, [&] { return !calls.empty(); })) {
    return fail(Code::kTimeout, "no connection request arrived before the deadline");
  }
  const auto call = calls.front();
  calls.pop_front();
  RKV_ASSIGN_OR_RETURN(auto link, detail::make_link(call->options, options));
  link->ends[1].address = listener.port().address;
  call->answered = link;
  network_->changed.notify_all();
  return MemoryTransport(std::make_unique<detail::MemoryState>(std::move(link), 1));
}

}  // namespace rkv::rdma
