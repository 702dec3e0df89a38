// Combines many small READs into few large ones: ranges that touch or overlap in the peer's memory
// become one READ that is scattered over their destinations.
//
//   RKV_ASSIGN_OR_RETURN(ReadPlanLimits limits, channel.read_limits());
//   std::array ranges = {ReadRange{.from = remote_a, .to = local_a}, ReadRange{remote_b, local_b}};
//   RKV_ASSIGN_OR_RETURN(ReadPlan plan, ReadPlan::make(ranges, limits));
//   RKV_RETURN_IF_ERROR(channel.read_all(plan, deadline));   // or by ReadFlow, without a channel
//
// Every requested byte arrives in its destination; the order of the READs is unspecified. Bytes
// that several ranges request are read once, and copied when all READs have completed. If the
// destination is device-only memory, they are read again. The time at which a byte is read is
// unspecified: one READ is not a snapshot, and neither are two ranges of one READ.
//
// A plan never overruns a queue: at most window() of its READs are posted at a time, bounded by the
// send queue, the completion queue and the read depth. Not every READ is signaled. But when one
// fails, each outstanding READ completes, so the completion queue needs entries for all of them.
//
// Thread safety: values; a ReadFlow belongs to one thread. Buffers must live until the plan has
// run, or the queue pair has been drained or destroyed. make() allocates, running does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rkv/export.h"
#include "rkv/rdma/completion.h"
#include "rkv/rdma/memory.h"
#include "rkv/rdma/queue_pair.h"
#include "rkv/result.h"

namespace rkv::rdma {

struct ReadRange {
  RemoteSpan from;
  RegisteredSpan to;  // of the same length
};

struct RKV_EXPORT ReadPlanLimits {
  std::uint32_t max_sge = 1;  // destinations of one READ
  std::uint64_t max_message_bytes = kMaxSgeBytes;
  std::uint32_t read_depth = 1;        // READs the peer answers at a time
  std::uint32_t send_slots = 1;        // free slots of the send queue
  std::uint32_t completion_slots = 1;  // free entries of the completion queue
  // Ranges at most this far apart are also joined; the bytes between them go to `scratch`, which is
  // at least as long. They lie between two ranges of one key, so the peer allows reading them.
  std::uint64_t gap_bytes = 0;
  RegisteredSpan scratch;

  // The limits of the device, its port and the two queues; both queues are assumed to be empty.
  // Makes system calls.
  static Result<ReadPlanLimits> of(const QueuePair& qp, const CompletionQueue& queue);
};

class RKV_EXPORT ReadPlan {
 public:
  struct Read {
    RemoteSpan from;
    std::span<const RegisteredSpan> to;
    bool signaled;
  };
  // Bytes that two ranges share, to be copied from where they were delivered.
  struct Copy {
    Bytes from;
    MutableBytes to;
  };

  // Plans the READs. Ranges without bytes are ignored. kInvalidArgument: a range whose two sides
  // differ in length or that wraps around the end of the address space; destinations that overlap
  // each other or the scratch; a limit of 0; gaps without scratch.
  static Result<ReadPlan> make(std::span<const ReadRange> ranges, const ReadPlanLimits& limits);

  std::size_t size() const { return reads_.size(); }
  Read operator[](std::size_t index) const;
  std::span<const Copy> copies() const { return copies_; }
  void copy() const;  // performs copies(); REQUIRES: all READs have completed

  std::uint32_t window() const { return window_; }  // READs posted at a time
  std::uint32_t signal_every() const { return signal_every_; }
  std::uint64_t requested_bytes() const { return requested_bytes_; }
  std::uint64_t read_bytes() const { return read_bytes_; }  // on the wire, gaps included

 private:
  friend class ReadPlanner;
  struct Planned {
    RemoteSpan from;
    std::size_t first_piece;
    std::size_t piece_count;
  };
  std::vector<Planned> reads_;
  std::vector<RegisteredSpan> pieces_;
  std::vector<Copy> copies_;
  std::uint32_t window_ = 1;
  std::uint32_t signal_every_ = 1;
  std::uint64_t requested_bytes_ = 0;
  std::uint64_t read_bytes_ = 0;
};

// The progress of a plan, for completion queues that serve other work too. The READs' wr_ids are
// first_wr_id and following.
class RKV_EXPORT ReadFlow {
 public:
  explicit ReadFlow(const ReadPlan& plan, std::uint64_t first_wr_id = 0)
      : plan_(&plan), first_wr_id_(first_wr_id) {}

  // may_post() returns the number of READs that may be posted now. posted() records that `count`
  // were posted.
  std::size_t may_post() const;
  void posted(std::size_t count);
  // Posts the READs that may be posted now. Does not block. On an error the queue pair must be
  // drained or destroyed.
  Status post(QueuePair& qp);
  // Counts a completion; false if it is not of this plan. An error is the READ's; the other READs
  // will complete as flushed.
  Result<bool> completed(const WorkCompletion& completion);

  bool done() const { return finished_ == plan_->size(); }
  std::size_t outstanding() const { return posted_ - finished_; }

 private:
  const ReadPlan* plan_;
  std::uint64_t first_wr_id_;
  std::size_t posted_ = 0;
  // READs known to have finished, by a signaled completion of the last of them
  std::size_t finished_ = 0;
};

}  // namespace rkv::rdma
