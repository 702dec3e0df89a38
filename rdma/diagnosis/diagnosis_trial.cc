// The part of rdma/diagnosis/diagnosis.h that connects a device to itself. It uses transport.h, so
// that the trial performs the same operations as the store.
#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <stop_token>
#include <thread>
#include <utility>

#include "common/histogram.h"
#include "common/random.h"
#include "rdma/diagnosis/diagnosis.h"

namespace rkv::rdma {
namespace {

// Capacities of InfiniBand and RoCE private data (transport.h).
constexpr std::size_t kRequestBytes = 56;
constexpr std::size_t kReplyBytes = 196;
constexpr std::size_t kWordBytes = sizeof(std::uint64_t);
constexpr std::uint32_t kOperations = 16;  // per end

template <std::size_t kLength>
std::array<std::byte, kLength> noise() {
  std::array<std::byte, kLength> bytes;
  for (std::byte& byte : bytes) {
    // Never zero, because zeros pad data that was cut off.
    byte = static_cast<std::byte>(random_from_kernel()) | std::byte{1};
  }
  return bytes;
}

// Both ends of the connection. Members are destroyed in reverse order: connections before their
// queues.
struct Ends {
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Queue> peer_queue;
  std::unique_ptr<Connection> connection;
  std::unique_ptr<Connection> peer;
};

// Runs the steps of a trial. Stops at the first error and records the step that failed.
class Course {
 public:
  Course(const TrialOptions& options, Trial& trial)
      : options_(options),
        trial_(trial),
        deadline_(Deadline::after_ms(clock_, options.connect_ms)) {}

  Status run() {
    trial_.step = "opening the device";
    RKV_ASSIGN_OR_RETURN(const auto transport,
                         open_verbs({.device = options_.device, .port = options_.port}));
    trial_.step = "registering memory";
    RKV_ASSIGN_OR_RETURN(const auto local, transport->allocate(kWordBytes, Access::kLocal));
    RKV_ASSIGN_OR_RETURN(const auto shared, transport->allocate(kWordBytes, Access::kRemoteRead));
    Ends ends;
    trial_.step = "creating queues";
    const QueueOptions small{
        .completions = 4 * kOperations, .receive_buffers = 8, .receive_bytes = 4096};
    RKV_ASSIGN_OR_RETURN(ends.queue, transport->create_queue(small));
    RKV_ASSIGN_OR_RETURN(ends.peer_queue, transport->create_queue(small));
    trial_.step = "connecting to itself";
    RKV_RETURN_IF_ERROR(connect(*transport, ends));
    trial_.step = "reading its own memory";
    RKV_RETURN_IF_ERROR(read(ends, *local, *shared));
    trial_.step = "swapping words of its own memory";
    return swap(*transport);
  }

 private:
  // The peer's side, on a separate thread.
  Status accept(Listener& listener, Ends& ends, Bytes request, Bytes reply) {
    RKV_ASSIGN_OR_RETURN(const auto incoming, listener.next(deadline_));
    if (incoming == nullptr) return fail(Code::kTimeout, "no connection request arrived");
    trial_.request_bytes = arrived_bytes(request, incoming->private_data());
    RKV_ASSIGN_OR_RETURN(
        ends.peer, incoming->accept(*ends.peer_queue,
                                    {.sends_in_flight = kOperations, .grant = Access::kRemoteRead},
                                    reply, deadline_));
    return {};
  }

  Status connect(Transport& transport, Ends& ends) {
    RKV_ASSIGN_OR_RETURN(const auto listener, transport.listen(options_.address + ":0"));
    const auto request = noise<kRequestBytes>();
    const auto reply = noise<kReplyBytes>();
    Status accepted;
    std::jthread peer([&] { accepted = accept(*listener, ends, request, reply); });
    const std::string address = options_.address + ":" + std::to_string(listener->port());
    auto connection = transport.connect(*ends.queue, {.sends_in_flight = kOperations}, address,
                                        request, deadline_, nullptr);
    if (!connection) listener->wake();  // no connection request will follow
    peer.join();
    if (!accepted && accepted.error().code != Code::kTimeout) return accepted;
    if (!connection) return std::unexpected(connection.error());
    RKV_RETURN_IF_ERROR(accepted);
    ends.connection = std::move(*connection);
    trial_.connected = true;
    trial_.reads_in_flight = ends.connection->limits().reads_in_flight;
    trial_.reply_bytes = arrived_bytes(reply, ends.connection->private_data());
    return {};
  }

  Status read(Ends& ends, const Region& local, const Region& remote) {
    Histogram nanos;
    for (std::uint32_t i = 0; i < options_.reads; ++i) {
      const Operation operation =
          Operation::read(local.bytes().first(kWordBytes), local.local_key(), remote.address(),
                          remote.remote_key(), i);
      const Nanos before = clock_.now();
      RKV_ASSIGN_OR_RETURN(const std::size_t taken, ends.connection->post({&operation, 1}));
      if (taken != 1) return fail(Code::kInternal, "the send queue did not accept a READ");
      RKV_RETURN_IF_ERROR(await(*ends.queue));
      nanos.record(static_cast<std::uint64_t>(clock_.now() - before));
      ++trial_.reads;
    }
    trial_.p50_ns = nanos.percentile(50);
    trial_.p99_ns = nanos.percentile(99);
    return {};
  }

  Status await(Queue& queue) {
    std::array<Completion, 4> done;
    for (;;) {
      const std::size_t count = queue.poll(done);
      for (const Completion& completion : std::span(done).first(count)) {
        if (completion.kind == Completion::Kind::kDisconnected) {
          return fail(Code::kDisconnected, "the device's connection to itself was closed");
        }
        if (completion.kind != Completion::Kind::kRead) continue;
        if (completion.status == Completion::Status::kOk) return {};
        return fail(Code::kInternal, to_string(completion.status));
      }
      if (deadline_.passed())
        return fail(Code::kTimeout, "a READ of the device's own memory was not answered");
      if (count == 0) queue.wait(deadline_);
    }
  }

  // The processor adds to a word while compare-and-swaps on it fail. A compare-and-swap that stores
  // the old value back undoes an addition between its load and its store. The next addition then
  // finds less than the previous addition left.
  Status swap(Transport& transport) {
    const auto region = transport.allocate(kWordBytes, Access::kRemoteReadAtomic);
    if (!region) return {};  // other memory was registered, so the device has no atomics
    auto atomics = transport.create_atomics(**region);
    if (!atomics && atomics.error().code == Code::kUnsupported) return {};
    if (!atomics) return std::unexpected(atomics.error());
    auto* const word = reinterpret_cast<std::uint64_t*>((*region)->bytes().data());
    constexpr std::uint64_t kNever = ~std::uint64_t{0};  // the word never has this value
    std::atomic<bool> lost = false;
    std::jthread processor([&](const std::stop_token& stop) {
      std::uint64_t left = 0;
      while (!stop.stop_requested() && !lost.load(std::memory_order_relaxed)) {
        const std::uint64_t found = std::atomic_ref(*word).fetch_add(1, std::memory_order_relaxed);
        if (found != left) lost.store(true, std::memory_order_relaxed);
        left = found + 1;
      }
    });
    const Deadline end = Deadline::after_ms(clock_, options_.swaps_ms);
    while (!lost.load(std::memory_order_relaxed) && !end.passed()) {
      const auto old = (*atomics)->compare_swap(word, kNever, 0);
      if (!old) return std::unexpected(old.error());
      ++trial_.swaps;
    }
    trial_.failed_swap = lost ? FailedSwap::kStoresBack : FailedSwap::kLeavesIt;
    return {};
  }

  const TrialOptions& options_;
  Trial& trial_;
  const SteadyClock clock_;
  const Deadline deadline_;
};

}  // namespace

std::size_t arrived_bytes(Bytes sent, Bytes arrived) {
  return static_cast<std::size_t>(std::ranges::mismatch(sent, arrived).in1 - sent.begin());
}

Trial try_connection(const TrialOptions& options) {
  Trial trial;
  const Status status = Course(options, trial).run();
  if (!status) trial.error = status.error();
  return trial;
}

}  // namespace rkv::rdma
