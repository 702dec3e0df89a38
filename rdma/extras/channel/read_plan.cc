#include "rkv/rdma/read_plan.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace {

constexpr std::uint32_t kMostSge = 32;  // kMaxPieces of a request

// Within one space, equal addresses mean the same memory. A space is the processor's address space,
// or one key's if only the device can address the memory.
struct Interval {
  std::uint64_t space;
  std::uint64_t begin;
  std::uint64_t end;
};

Interval interval_of(const RegisteredSpan& span) {
  const std::uint64_t space = span.addressable() ? 0 : std::uint64_t{1} + span.lkey();
  return {.space = space, .begin = span.address(), .end = span.address() + span.size()};
}

bool overlap_somewhere(std::vector<Interval>& all) {
  std::ranges::sort(all, [](const Interval& a, const Interval& b) {
    return std::tie(a.space, a.begin) < std::tie(b.space, b.begin);
  });
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i].space == all[i - 1].space && all[i].begin < all[i - 1].end) return true;
  }
  return false;
}

Status check(std::span<const ReadRange> ranges, const ReadPlanLimits& limits) {
  if (limits.max_sge == 0 || limits.max_message_bytes == 0 || limits.read_depth == 0 ||
      limits.send_slots == 0 || limits.completion_slots == 0) {
    return fail(Code::kInvalidArgument, "no limit may be 0");
  }
  if (limits.gap_bytes > limits.scratch.size()) {
    return fail(Code::kInvalidArgument, "ReadPlanLimits::scratch is shorter than gap_bytes");
  }
  std::vector<Interval> places;
  places.reserve(ranges.size() + 1);
  const auto add = [&](const RegisteredSpan& span) {
    if (span.size() != 0) places.push_back(interval_of(span));
  };
  if (limits.gap_bytes != 0) add(limits.scratch);
  for (const ReadRange& range : ranges) {
    if (range.from.length != range.to.size()) {
      return fail(Code::kInvalidArgument, "a range and its destination differ in length");
    }
    if (range.from.address > ~std::uint64_t{0} - range.from.length) {
      return fail(Code::kInvalidArgument, "a range wraps around the end of the address space");
    }
    add(range.to);
  }
  if (overlap_somewhere(places)) {
    return fail(Code::kInvalidArgument, "two destinations, or one and the scratch, overlap");
  }
  return {};
}

}  // namespace

// Processes the ranges in order of key and address. `end_` is the end of the peer's memory that is
// covered so far. The part of a range before `end_` was delivered already, so it is copied locally.
class ReadPlanner {
 public:
  ReadPlanner(const ReadPlanLimits& limits, ReadPlan& plan) : limits_(limits), plan_(plan) {
    max_sge_ = std::min(limits.max_sge, kMostSge);
    max_bytes_ = std::min<std::uint64_t>(limits.max_message_bytes, kMaxSgeBytes);
  }

  void add(const ReadRange& range) {
    const std::uint64_t begin = range.from.address;
    const std::uint64_t end = begin + range.from.length;
    plan_.requested_bytes_ += range.from.length;
    if (rkey_ != range.from.rkey || places_.empty() || begin > end_) {
      if (!bridge(range)) start(range);
    } else if (begin < end_ && !can_copy(range.to)) {
      start(range);  // reads the shared bytes again
    }
    std::size_t known = 0;
    if (begin < end_) known = std::min(end, end_) - begin;
    copy_known(begin, range.to.first(known));
    if (known == range.from.length) return;
    const RegisteredSpan fresh = range.to.subspan(known, range.to.size() - known);
    places_.push_back({.address = begin + known, .local = fresh});
    deliver(fresh);
    end_ = end;
  }

 private:
  struct Place {
    std::uint64_t address;
    RegisteredSpan local;
  };

  // True if the processor can copy from every place so far.
  bool can_copy(const RegisteredSpan& to) const {
    return to.addressable() && std::ranges::all_of(places_, [](const Place& place) {
             return place.local.addressable();
           });
  }

  void start(const ReadRange& range) {
    places_.clear();
    rkey_ = range.from.rkey;
    end_ = range.from.address;
    open_ = false;
  }

  // Reads the gap into the scratch, if the options allow it and the READ can hold the gap and at
  // least one byte after it.
  bool bridge(const ReadRange& range) {
    if (!open_ || places_.empty() || rkey_ != range.from.rkey) return false;
    const std::uint64_t gap = range.from.address - end_;
    ReadPlan::Planned& read = plan_.reads_.back();
    if (gap > limits_.gap_bytes || read.piece_count + 2 > max_sge_) return false;
    if (read.from.length >= max_bytes_ || gap >= max_bytes_ - read.from.length) return false;
    append(limits_.scratch.first(gap));
    end_ = range.from.address;
    return true;
  }

  // Splits a piece into READs.
  void deliver(RegisteredSpan piece) {
    std::uint64_t address = end_;
    while (piece.size() != 0) {
      if (!open_ || full(piece)) {
        plan_.reads_.push_back({.from = {.address = address, .length = 0, .rkey = rkey_},
                                .first_piece = plan_.pieces_.size(),
                                .piece_count = 0});
        open_ = true;
      }
      const std::uint64_t room = max_bytes_ - plan_.reads_.back().from.length;
      const std::size_t now = std::min<std::uint64_t>(room, piece.size());
      append(piece.first(now));
      piece = piece.subspan(now, piece.size() - now);
      address += now;
    }
  }

  bool full(const RegisteredSpan& piece) const {
    const ReadPlan::Planned& read = plan_.reads_.back();
    if (read.from.length == max_bytes_) return true;
    return read.piece_count == max_sge_ && !extends_last(piece);
  }
  bool extends_last(const RegisteredSpan& piece) const {
    if (plan_.reads_.back().piece_count == 0) return false;
    const RegisteredSpan& last = plan_.pieces_.back();
    return last.lkey() == piece.lkey() && last.addressable() == piece.addressable() &&
           last.address() + last.size() == piece.address();
  }

  void append(const RegisteredSpan& piece) {
    ReadPlan::Planned& read = plan_.reads_.back();
    if (extends_last(piece)) {
      RegisteredSpan& last = plan_.pieces_.back();
      const std::size_t size = last.size() + piece.size();
      last = last.addressable()
                 ? RegisteredSpan::unchecked({last.bytes().data(), size}, last.lkey())
                 : RegisteredSpan::device_only(last.address(), size, last.lkey());
    } else {
      plan_.pieces_.push_back(piece);
      ++read.piece_count;
    }
    read.from.length += piece.size();
    plan_.read_bytes_ += piece.size();
  }

  // `to` is a copy of the bytes from `address` on, all of which were delivered to `places_`.
  void copy_known(std::uint64_t address, RegisteredSpan to) {
    if (to.size() == 0) return;
    auto place = std::ranges::upper_bound(places_, address, {}, &Place::address);
    --place;
    while (to.size() != 0) {
      const std::size_t offset = address - place->address;
      const std::size_t now = std::min(place->local.size() - offset, to.size());
      plan_.copies_.push_back(
          {.from = place->local.bytes().subspan(offset, now), .to = to.bytes().first(now)});
      address += now;
      to = to.subspan(now, to.size() - now);
      ++place;
    }
  }

  const ReadPlanLimits& limits_;
  ReadPlan& plan_;
  std::vector<Place> places_;  // of the ranges joined so far; sorted by address, no overlap
  std::uint64_t max_bytes_;
  std::uint64_t end_ = 0;
  std::uint32_t max_sge_;
  std::uint32_t rkey_ = 0;
  bool open_ = false;  // the last READ may be extended
};

Result<ReadPlan> ReadPlan::make(std::span<const ReadRange> ranges, const ReadPlanLimits& limits) {
  RKV_RETURN_IF_ERROR(check(ranges, limits));
  std::vector<const ReadRange*> sorted;
  sorted.reserve(ranges.size());
  for (const ReadRange& range : ranges) {
    if (range.to.size() != 0) sorted.push_back(&range);
  }
  std::ranges::sort(sorted, [](const ReadRange* a, const ReadRange* b) {
    if (a->from.rkey != b->from.rkey) return a->from.rkey < b->from.rkey;
    return a->from.address < b->from.address;
  });
  ReadPlan plan;
  ReadPlanner planner(limits, plan);
  for (const ReadRange* range : sorted)
    planner.add(*range);
  // A failure completes everything outstanding, signaled or not. So the completion slots bound the
  // whole window, not only the signaled READs. A signal every half window: one half stays in flight
  // while the other half is posted again.
  plan.window_ = std::min({limits.read_depth, limits.send_slots, limits.completion_slots});
  plan.signal_every_ = std::max(1U, plan.window_ / 2);
  return plan;
}

ReadPlan::Read ReadPlan::operator[](std::size_t index) const {
  const Planned& read = reads_[index];
  return {.from = read.from,
          .to = std::span(pieces_).subspan(read.first_piece, read.piece_count),
          .signaled = (index + 1) % signal_every_ == 0 || index + 1 == reads_.size()};
}

void ReadPlan::copy() const {
  for (const Copy& one : copies_)
    std::memcpy(one.to.data(), one.from.data(), one.from.size());
}

std::size_t ReadFlow::may_post() const {
  return std::min<std::size_t>(plan_->window() - outstanding(), plan_->size() - posted_);
}

void ReadFlow::posted(std::size_t count) {
  RKV_CHECK(count <= may_post(), "more READs posted than the queues hold");
  posted_ += count;
}

Status ReadFlow::post(QueuePair& qp) {
  const std::size_t count = may_post();
  Batch batch = qp.batch();
  for (std::size_t i = 0; i < count; ++i) {
    const ReadPlan::Read read = (*plan_)[posted_ + i];
    batch.read(first_wr_id_ + posted_ + i, read.signaled ? OpFlags::kSignaled : OpFlags::kNone,
               read.to, read.from);
  }
  RKV_RETURN_IF_ERROR(std::move(batch).submit());
  posted(count);
  return {};
}

Result<bool> ReadFlow::completed(const WorkCompletion& completion) {
  const std::uint64_t index = completion.wr_id - first_wr_id_;
  if (completion.wr_id < first_wr_id_ || index >= plan_->size()) return false;
  if (!completion.ok()) return std::unexpected(wc_error("RDMA READ", completion.status));
  RKV_CHECK(index >= finished_ && index < posted_, "a READ completed that was not outstanding");
  finished_ = index + 1;  // a send queue completes in order
  return true;
}

Result<ReadPlanLimits> ReadPlanLimits::of(const QueuePair& qp, const CompletionQueue& queue) {
  RKV_ASSIGN_OR_RETURN(const QueuePair::Queried now,
                       qp.query(IBV_QP_CAP | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_PORT));
  // Soft-iWARP does not report the port of a queue pair; it has only one.
  const std::uint8_t number = std::max<std::uint8_t>(1, now.attributes.port_num);
  RKV_ASSIGN_OR_RETURN(const PortAttributes port, qp.device().port(number));
  return ReadPlanLimits{.max_sge = std::max(1U, qp.read_pieces()),
                        .max_message_bytes = port.max_message_bytes,
                        .read_depth = std::max<std::uint32_t>(1, now.attributes.max_rd_atomic),
                        .send_slots = now.created.cap.max_send_wr,
                        .completion_slots = queue.entries(),
                        .scratch = {}};
}

}  // namespace rkv::rdma
