// Counters of a port, which the kernel keeps, and of a queue pair and a completion queue, which the
// program keeps.
//
//   RKV_ASSIGN_OR_RETURN(PortCounters before, port_counters("mlx5_0", 1));
//   ... RKV_ASSIGN_OR_RETURN(PortCounters after, port_counters("mlx5_0", 1));
//   after.since(before).get(counter::kOutOfSequence)   // optional: not every device has it
//
//   CountedQueue counted(queue);                 // poll() and wait() that also count
//   counted.counts().empty_polls
//   PostCounts posts;
//   posts.submit(std::move(batch), 1);           // posts 1 signaled request among batch.count()
//
// CountedQueue and PostCounts are optional: queues and batches alone count nothing.
//
// Thread safety: one thread at a time for CountedQueue and PostCounts; the rest are values.
// Source: Documentation/ABI/stable/sysfs-class-infiniband of Linux.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rkv/clock.h"
#include "rkv/export.h"
#include "rkv/rdma/completion.h"
#include "rkv/rdma/error.h"
#include "rkv/result.h"

namespace rkv::rdma {

// Names of counters that many devices have; PortCounters::get() accepts any other name as well.
namespace counter {
inline constexpr std::string_view kSentWords = "port_xmit_data";     // 4 bytes each
inline constexpr std::string_view kReceivedWords = "port_rcv_data";  // 4 bytes each
inline constexpr std::string_view kSentPackets = "port_xmit_packets";
inline constexpr std::string_view kReceivedPackets = "port_rcv_packets";
inline constexpr std::string_view kReceiveErrors = "port_rcv_errors";
inline constexpr std::string_view kSendDiscards = "port_xmit_discards";
inline constexpr std::string_view kSendWait = "port_xmit_wait";  // ticks without send credits
inline constexpr std::string_view kLinkDowned = "link_downed";
inline constexpr std::string_view kOutOfSequence = "out_of_sequence";           // mlx5
inline constexpr std::string_view kOutOfBuffer = "out_of_buffer";               // no receive posted
inline constexpr std::string_view kCongestionMarks = "rp_cnp_handled";          // CNPs handled
inline constexpr std::string_view kAckTimeouts = "local_ack_timeout_err";       // mlx5
inline constexpr std::string_view kSoftSentPackets = "sent_pkts";               // SoftRoCE
inline constexpr std::string_view kSoftReceivedPackets = "rcvd_pkts";           // SoftRoCE
inline constexpr std::string_view kSoftSends = "rdma_sends";                    // SoftRoCE
inline constexpr std::string_view kSoftReceiverNotReady = "rcvd_rnr_err";       // SoftRoCE
inline constexpr std::string_view kSoftRetriesExceeded = "retry_exceeded_err";  // SoftRoCE
}  // namespace counter

// The directory of a counter.
enum class CounterSource : unsigned char {
  kPort,      // counters/: what the InfiniBand specification defines
  kHardware,  // hw_counters/: the driver's own
};
struct PortCounter {
  std::string name;
  CounterSource source = CounterSource::kPort;
  std::uint64_t value = 0;
};

// The counters of one port at one time, sorted by name.
class RKV_EXPORT PortCounters {
 public:
  explicit PortCounters(std::vector<PortCounter> counters);
  std::optional<std::uint64_t> get(std::string_view name) const;
  std::optional<std::uint64_t> get(std::string_view name, CounterSource source) const;
  std::span<const PortCounter> all() const { return counters_; }
  bool empty() const { return counters_.empty(); }
  // Returns the increase since `earlier`; counters that `earlier` lacks are left out. A counter
  // smaller than in `earlier` was reset and counts from 0.
  PortCounters since(const PortCounters& earlier) const;

 private:
  std::vector<PortCounter> counters_;
};
// Reads counters/ and hw_counters/ below ROOT/DEVICE/ports/PORT. Files without a number ("N/A",
// unreadable) are left out. kNotFound: neither directory exists. Makes several system calls per
// counter. The kernel refreshes hw_counters/ only after their lifespan (hw_counters/lifespan, 10 ms
// by default), so the latest events may be missing.
RKV_EXPORT Result<PortCounters> port_counters(std::string_view device, std::uint8_t port,
                                              std::string_view root = "/sys/class/infiniband");

// The completions a completion queue has returned.
struct RKV_EXPORT CompletionCounts {
  std::uint64_t polls = 0;
  std::uint64_t empty_polls = 0;
  std::uint64_t waits = 0;                  // calls of wait(), whether they slept or not
  std::uint64_t completions = 0;            // all of them
  std::uint64_t bytes = 0;                  // of receives and READs that succeeded
  std::array<std::uint64_t, 7> by_class{};  // index: WcClass

  std::uint64_t of(WcClass kind) const { return by_class[static_cast<std::size_t>(kind)]; }
  std::uint64_t flushed() const { return of(WcClass::kFlushed); }
  std::uint64_t receiver_not_ready() const { return of(WcClass::kReceiverNotReady); }
  // Completions that failed, except those flushed because of an earlier failure.
  std::uint64_t errors() const { return completions - of(WcClass::kSuccess) - flushed(); }
  void add(const WorkCompletion& completion);
};

// A completion queue with counts. Polls of the underlying queue are not counted.
class CountedQueue {
 public:
  explicit CountedQueue(CompletionQueue& queue) : queue_(queue) {}

  Result<std::size_t> poll(std::span<WorkCompletion> out) {
    ++counts_.polls;
    return count(out, queue_.poll(out), 1);
  }
  Result<std::size_t> wait(std::span<WorkCompletion> out, const Deadline& deadline) {
    ++counts_.waits;
    return count(out, queue_.wait(out, deadline), 0);
  }
  const CompletionCounts& counts() const { return counts_; }
  CompletionQueue& queue() { return queue_; }

 private:
  Result<std::size_t> count(std::span<const WorkCompletion> out, Result<std::size_t> found,
                            unsigned empty) {
    if (!found) return found;
    if (*found == 0) counts_.empty_polls += empty;
    for (const WorkCompletion& one : out.first(*found))
      counts_.add(one);
    return found;
  }
  CompletionQueue& queue_;
  CompletionCounts counts_;
};

// The requests posted on a queue pair, and their completions.
struct PostCounts {
  std::uint64_t posted = 0;
  std::uint64_t signaled = 0;
  std::uint64_t doorbells = 0;  // batches that were accepted
  std::uint64_t refused = 0;    // batches that were refused
  std::uint64_t receives = 0;
  CompletionCounts completed;  // the caller adds this queue pair's completions: completed.add()

  // Submits and counts. `Batch` is any batch type of the library: it has count(), and submit() on
  // an rvalue.
  template <class Batch>
  Status submit(Batch&& batch, std::uint32_t signaled_requests) {
    const std::uint32_t requests = batch.count();
    const Status status = std::forward<Batch>(batch).submit();
    if (!status) {
      ++refused;
    } else if (requests != 0) {
      ++doorbells;
      posted += requests;
      signaled += signaled_requests;
    }
    return status;
  }
};

}  // namespace rkv::rdma
