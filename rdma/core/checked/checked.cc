// The switch of checked mode, and the hooks of handles.
#include "rkv/rdma/checked.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "common/check.h"
#include "rdma/core/checked/checked_book.h"
#include "rdma/core/checked/checked_hooks.h"

namespace rkv::rdma::checked {
namespace {

struct Switch {
  bool on = false;
  Options options;
  std::atomic<bool> used{false};  // a handle was created, tracked or not

  Switch() {
    const char* const value = secure_getenv("RKV_RDMA_CHECKED");
    const std::string_view text = value != nullptr ? value : "";
    on = !text.empty() && text != "0";
    options.poison = text.find("poison") != text.npos;
    options.overlaps = text.find("overlaps") != text.npos;
  }
};
Switch& its_switch() {
  static Switch one;
  return one;
}

bool on_for_new() {
  Switch& the = its_switch();
  the.used.store(true, std::memory_order_relaxed);
  return the.on;
}

// Holds the lock of the book, and gives it the switch's options.
class RKV_SCOPED_CAPABILITY Open {
 public:
  Open() RKV_ACQUIRE(book().lock) {
    book().lock.lock();
    book().options = its_switch().options;
  }
  ~Open() RKV_RELEASE() { book().lock.unlock(); }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
};

void enter_region(const ibv_mr* raw, Region region) {
  const Open open;
  region.raw = raw;
  region.domain = raw->pd->handle;
  book().regions[{raw->context, raw->lkey}] = region;
}

}  // namespace

bool on() {
  return its_switch().on;
}

void enable(const Options& options) {
  RKV_CHECK(!its_switch().used.load(std::memory_order_relaxed),
            "enable checked mode before the first region or queue is created");
  its_switch().on = true;
  its_switch().options = options;
}

void allow_overlaps(const ibv_mr& region) {
  if (!on()) return;
  const Open open;
  const auto found = book().regions.find({region.context, region.lkey});
  if (found != book().regions.end()) found->second.overlaps = true;
}

void forbid_wr_id_reuse(const ibv_qp& qp) {
  if (!on()) return;
  const Open open;
  const auto found = book().pairs.find(&qp);
  if (found != book().pairs.end()) found->second->unique_ids = true;
}

void begin(const ibv_mr& region) {
  region_begins(&region, reinterpret_cast<std::uint64_t>(region.addr), region.length,
                {static_cast<const std::byte*>(region.addr), region.length});
}
void end(const ibv_mr& region) {
  region_ends(&region);
}

std::size_t in_flight() {
  if (!on()) return 0;
  const Open open;
  return book().count();
}

void region_begins(const ibv_mr* region, std::uint64_t address, std::size_t length, Bytes cpu) {
  if (!on_for_new()) return;
  enter_region(
      region,
      {.address = address, .length = length, .cpu = reinterpret_cast<std::uint64_t>(cpu.data())});
}

void region_ends(const ibv_mr* region) {
  if (!on()) return;
  const Open open;
  const auto found = book().regions.find({region->context, region->lkey});
  if (found == book().regions.end()) return;
  if (const Request* request = book().naming(region->context, region->lkey)) {
    violated(fmt::format("the region with key {:#x} at [{:#x}, {:#x}) ends while {} is in flight",
                         region->lkey, found->second.address,
                         found->second.address + found->second.length, describe(*request)));
  }
  book().regions.erase(found);
}

void window_ends(const ibv_mw* window) {
  if (!on()) return;
  const Open open;
  const Request* const request = book().naming(*window);
  if (request == nullptr) return;
  violated(fmt::format("the window with key {:#x} ends while {} is in flight", window->rkey,
                       describe(*request)));
}

std::uint64_t fields_needed() {
  return on() ? std::uint64_t{IBV_WC_EX_WITH_QP_NUM} : 0;
}

void queue_begins(ibv_cq* queue, ibv_cq_ex* extended) {
  if (!on_for_new()) return;
  const Open open;
  auto fresh = std::make_unique<Queue>();
  wrap_context(book(), queue->context);
  if (extended != nullptr) wrap_queue(*fresh, extended);
  book().queues[queue] = std::move(fresh);
}

void queue_ends(ibv_cq* queue) {
  if (!on()) return;
  const Open open;
  book().queues.erase(queue);
}

void shared_receives_begin(ibv_srq* queue) {
  if (!on_for_new()) return;
  const Open open;
  wrap_context(book(), queue->context);
  auto fresh = std::make_unique<SharedReceives>();
  fresh->raw = queue;
  book().shared[queue] = std::move(fresh);
}

void shared_receives_end(ibv_srq* queue) {
  if (!on()) return;
  const Open open;
  const auto found = book().shared.find(queue);
  if (found == book().shared.end()) return;
  book().end_all(found->second->receives);
  book().shared.erase(found);
}

void pair_begins(ibv_qp* pair, ibv_qp_ex* extended, ibv_srq* shared, std::uint32_t send_length) {
  if (!on_for_new()) return;
  const Open open;
  wrap_context(book(), pair->context);
  auto fresh = std::make_unique<Pair>();
  fresh->raw = pair;
  fresh->send_length = send_length;
  const auto receives = book().shared.find(shared);
  if (receives != book().shared.end()) {
    fresh->shared = receives->second.get();
    ++fresh->shared->pairs;
  }
  if (extended != nullptr) wrap_pair(*fresh, extended);
  book().pairs_by_number[{pair->context, pair->qp_num}] = fresh.get();
  book().pairs[pair] = std::move(fresh);
}

void pair_resets(ibv_qp* pair) {
  if (!on()) return;
  const Open open;
  const auto found = book().pairs.find(pair);
  if (found == book().pairs.end()) return;
  book().end_all(found->second->sends);
  book().end_all(found->second->receives);
  found->second->unsignaled = 0;
}

void pair_ends(ibv_qp* pair) {
  if (!on()) return;
  {
    const Open open;
    const auto found = book().pairs.find(pair);
    if (found == book().pairs.end()) return;
    book().no_batch_open(*found->second, "the end of a queue pair");
  }
  pair_resets(pair);
  const Open open;
  const auto found = book().pairs.find(pair);
  if (found->second->shared != nullptr) --found->second->shared->pairs;
  book().pairs_by_number.erase({pair->context, pair->qp_num});
  book().pairs.erase(found);
}

}  // namespace rkv::rdma::checked
