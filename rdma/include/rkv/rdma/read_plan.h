// Many small READs as few large ones: ranges that touch or overlap in the peer's memory become one
// READ that is scattered over their destinations.
//
//   RKV_ASSIGN_OR_RETURN(ReadPlanLimits limits, ReadPlanLimits::of(qp, queue));
//   std::array ranges = {ReadRange{.from = remote_a, .to = local_a}, ReadRange{remote_b, local_b}};
//   RKV_ASSIGN_OR_RETURN(ReadPlan plan, ReadPlan::make(ranges, limits));
//   RKV_RETURN_IF_ERROR(run_reads(plan, qp, queue, deadline));   // or Channel::read_all()
//
// Every requested byte arrives in its place, whatever order the device reads in: bytes that several
// ranges ask for are read once and copied when all READs have completed; into memory that only the
// device can address they are read again. Nothing is promised about
// the moment at which a byte was read: one READ is no snapshot, and two ranges of one READ are
// none.
//
// A plan never overruns a queue: of its READs no more are posted at a time than the send queue, the
// completion queue and the read depth hold (window()). Not every READ is signaled; but when one
// fails, each that is outstanding completes, so the completion queue needs room for all of them.
//
// Thread safety: values; a flow is one thread's. Buffers: until the plan has run, or the queue pair
// has been drained or destroyed. make() allocates, running does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rkv/clock.h"
#include "rkv/export.h"
#include "rkv/rdma/completion.h"
#include "rkv/rdma/memory.h"
#include "rkv/rdma/queue_pair.h"
#include "rkv/result.h"

namespace rkv::rdma {

struct ReadRange {
  RemoteSpan from;
  RegisteredSpan to;  // as long
};

struct RKV_EXPORT ReadPlanLimits {
  std::uint32_t max_sge = 1;  // destinations of one READ
  std::uint64_t max_message_bytes = kMaxSgeBytes;
  std::uint32_t read_depth = 1;        // READs the peer answers at a time
  std::uint32_t send_slots = 1;        // free ones of the send queue
  std::uint32_t completion_slots = 1;  // free ones of the completion queue
  // Ranges at most this far apart are joined too; the bytes between them go to `scratch`, which is
  // at least as long. They lie between two ranges of one key, so they are the peer's to read.
  std::uint64_t gap_bytes = 0;
  RegisteredSpan scratch;

  // What the device, its port and the two queues allow; both queues are assumed to be empty.
  // System calls.
  static Result<ReadPlanLimits> of(const QueuePair& qp, const CompletionQueue& queue);
};

class RKV_EXPORT ReadPlan {
 public:
  struct Read {
    RemoteSpan from;
    std::span<const RegisteredSpan> to;
    bool signaled;
  };
  // What two ranges share, to be copied from the place where it was delivered.
  struct Copy {
    Bytes from;
    MutableBytes to;
  };

  // kInvalidArgument: a range whose two sides differ in length or that wraps around the end of the
  // address space, destinations that overlap each other or the scratch, a limit of 0, gaps without
  // scratch. Ranges without bytes are left out.
  static Result<ReadPlan> make(std::span<const ReadRange> ranges, const ReadPlanLimits& limits);

  std::size_t size() const { return reads_.size(); }
  Read operator[](std::size_t index) const;
  std::span<const Copy> copies() const { return copies_; }
  void copy() const;  // makes them; REQUIRES: all READs have completed

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

// How far a plan has been posted and finished: for completion queues that serve other work too.
// The READs' wr_ids are first_wr_id and following.
class RKV_EXPORT ReadFlow {
 public:
  explicit ReadFlow(const ReadPlan& plan, std::uint64_t first_wr_id = 0)
      : plan_(&plan), first_wr_id_(first_wr_id) {}

  // How many READs may be posted now, and that they were.
  std::size_t may_post() const;
  void posted(std::size_t count);
  // Posts them. On an error the queue pair must be drained or destroyed.
  Status post(QueuePair& qp);
  // False: not of this plan. An error: the READ's; the others will complete as flushed.
  Result<bool> completed(const WorkCompletion& completion);

  bool done() const { return finished_ == plan_->size(); }
  std::size_t outstanding() const { return posted_ - finished_; }

 private:
  const ReadPlan* plan_;
  std::uint64_t first_wr_id_;
  std::size_t posted_ = 0;
  std::size_t finished_ = 0;  // those before, by a completion of the last of them
};

// Runs a plan to its end, copies included. Nobody else's completions may be in `queue`, which needs
// a channel. Blocks. On an error - kTimeout among them - READs may be outstanding: drain or destroy
// the queue pair before the buffers are used.
RKV_EXPORT Status run_reads(const ReadPlan& plan, QueuePair& qp, CompletionQueue& queue,
                            const Deadline& deadline);

}  // namespace rkv::rdma
