#include "rdma/core/checked/checked_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "common/standard_streams.h"
#include "rkv/rdma/span.h"

// Defined in a program built with AddressSanitizer, null in others.
// NOLINTBEGIN(*-reserved-identifier,*-identifier-naming): the sanitizer's names
extern "C" {
__attribute__((weak)) void __asan_poison_memory_region(const volatile void*, std::size_t);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void*, std::size_t);
}
// NOLINTEND(*-reserved-identifier,*-identifier-naming)

namespace rkv::rdma::checked {
namespace {

std::string range(std::uint64_t begin, std::uint64_t length) {
  return fmt::format("[{:#x}, {:#x})", begin, begin + length);
}

void poison(const Claims::value_type& claim, bool on) {
  if (__asan_poison_memory_region == nullptr || claim.first.first != 0) return;
  auto* const begin = reinterpret_cast<const volatile void*>(claim.first.second);
  const std::size_t length = claim.second.end - claim.first.second;
  (on ? __asan_poison_memory_region : __asan_unpoison_memory_region)(begin, length);
}

// Returns the first claim on a byte of [begin, end) for which `counts` holds.
template <class Counts>
const Request* overlapping(const Claims& claims, std::uint64_t longest, Place begin,
                           std::uint64_t end, Counts counts) {
  const std::uint64_t back = std::min(longest, begin.second);
  for (auto at = claims.lower_bound({begin.first, begin.second - back});
       at != claims.end() && at->first < Place{begin.first, end}; ++at) {
    if (at->second.end > begin.second && counts(*at->second.owner)) return at->second.owner;
  }
  return nullptr;
}

constexpr auto kAny = [](const Request&) { return true; };

}  // namespace

Book& book() {
  static Book* const one = new Book;  // never destroyed: handles may outlive static objects
  return *one;
}

void violated(const std::string& sentence) {
  write_to_stderr("rkv/rdma checked: " + sentence + "\n", kReaderWaitMs);
  std::abort();
}

std::string describe(const Request& request) {
  const std::string where = request.pair != nullptr
                                ? fmt::format("queue pair {:#x}", request.pair->raw->qp_num)
                                : "a shared receive queue";
  std::string out = fmt::format("wr_id {} ({}, {})", request.wr_id, request.operation.name, where);
  const char* between = " at ";
  for (const Piece& piece : request.pieces) {
    out += between + range(piece.address, piece.length);
    between = ", ";
  }
  return out;
}

std::uint64_t Book::enter(Pair& pair, Requests& fresh, bool receives) {
  Requests& into = receives ? pair.receives : pair.sends;
  const std::uint64_t first = serial_ + 1;
  while (!fresh.empty()) {
    Request& request = fresh.front();
    request.context = pair.raw->context;
    request.pair = &pair;
    request.unsignaled_before = pair.unsignaled;
    if (pair.unique_ids) check_unique(into, request);
    if (receives) {
      request.completes_on = pair.raw->recv_cq;
    } else {
      check_starvation(pair, request);
      if (request.signaled) request.completes_on = pair.raw->send_cq;
    }
    admit(request, pair.raw->pd);
    into.splice(into.end(), fresh, fresh.begin());
  }
  return first;
}

std::uint64_t Book::enter(SharedReceives& shared_queue, Requests& fresh) {
  const std::uint64_t first = serial_ + 1;
  while (!fresh.empty()) {
    Request& request = fresh.front();
    request.context = shared_queue.raw->context;
    admit(request, shared_queue.raw->pd);
    shared_queue.receives.splice(shared_queue.receives.end(), fresh, fresh.begin());
  }
  return first;
}

void Book::check_unique(const Requests& others, const Request& request) const {
  const auto same = std::ranges::find(others, request.wr_id, &Request::wr_id);
  if (same == others.end()) return;
  violated(fmt::format("{} has the wr_id of {}, which is still in flight", describe(request),
                       describe(*same)));
}

void Book::check_starvation(Pair& pair, const Request& request) const {
  pair.unsignaled = request.signaled ? 0 : pair.unsignaled + 1;
  if (pair.unsignaled <= pair.send_length) return;
  violated(
      fmt::format("{} and the {} before it are unsignaled and fill the send queue: no completion "
                  "can free it; signal at least one request in send_length",
                  describe(request), pair.send_length));
}

// Checks the rules that apply to all requests, and adds the claims.
void Book::admit(Request& request, const ibv_pd* domain) {
  request.serial = ++serial_;
  if (request.completes_on != nullptr) {
    auto& queue = queues[request.completes_on];
    if (queue == nullptr) queue = std::make_unique<Queue>();
    if (queue->posted >= static_cast<std::uint64_t>(request.completes_on->cqe)) {
      violated(fmt::format(
          "{} would exceed the completions that its completion queue of {} entries holds",
          describe(request), request.completes_on->cqe));
    }
    ++queue->posted;
  }
  if (request.copied) return;
  for (const Piece& piece : request.pieces) {
    if (piece.length != 0) claim(request, region_of(request, piece, domain), piece);
  }
}

const Region& Book::region_of(const Request& request, const Piece& piece,
                              const ibv_pd* domain) const {
  const auto found = regions.find({request.context, piece.lkey});
  if (found == regions.end()) {
    violated(fmt::format("{} names the key {:#x}, which no region of its device has",
                         describe(request), piece.lkey));
  }
  const Region& region = found->second;
  if (region.domain != domain->handle) {
    violated(fmt::format("{} names the key {:#x} of a region in another protection domain",
                         describe(request), piece.lkey));
  }
  if (piece.address < region.address ||
      !lies_inside(piece.address - region.address, piece.length, region.length)) {
    violated(fmt::format("{} has a piece {} outside the region {} of its key {:#x}",
                         describe(request), range(piece.address, piece.length),
                         range(region.address, region.length), piece.lkey));
  }
  return region;
}

void Book::claim(Request& request, const Region& region, const Piece& piece) {
  if (!request.operation.touches) return;
  if (region.overlaps || options.overlaps) return;
  const Place begin = region.cpu != 0
                          ? Place{0, region.cpu + (piece.address - region.address)}
                          : Place{reinterpret_cast<std::uint64_t>(region.raw), piece.address};
  const std::uint64_t end = begin.second + piece.length;
  const bool writes = request.operation.writes;
  const auto unfenced = [&request, writes](const Request& other) {
    return writes || !request.fenced || !other.operation.fences || other.pair != request.pair;
  };
  if (const Request* other = overlapping(written_, longest_written_, begin, end, unfenced)) {
    violated(fmt::format("{} {} bytes that {} writes, which is still in flight", describe(request),
                         writes ? "writes" : "sends", describe(*other)));
  }
  if (writes) {
    if (const Request* other = overlapping(read_, longest_read_, begin, end, kAny)) {
      violated(fmt::format("{} writes bytes that {} sends, which is still in flight",
                           describe(request), describe(*other)));
    }
  }
  std::uint64_t& longest = writes ? longest_written_ : longest_read_;
  longest = std::max(longest, piece.length);
  const auto entry =
      (writes ? written_ : read_).emplace(begin, Claim{.end = end, .owner = &request});
  (writes ? request.written : request.read).push_back(entry);
  if (options.poison && writes) poison(*entry, true);
}

Requests::iterator Book::end(Requests& requests, Requests::iterator one) {
  for (const auto& claim : one->written) {
    if (options.poison) poison(*claim, false);
    written_.erase(claim);
  }
  for (const auto& claim : one->read)
    read_.erase(claim);
  if (one->completes_on != nullptr) {
    const auto queue = queues.find(one->completes_on);
    if (queue != queues.end() && queue->second->posted != 0) --queue->second->posted;
  }
  return requests.erase(one);
}

void Book::end_all(Requests& requests) {
  for (auto at = requests.begin(); at != requests.end();)
    at = end(requests, at);
}

void Book::take_back(Requests& from, std::uint64_t serial) {
  for (auto at = from.begin(); at != from.end();)
    at = at->serial >= serial ? end(from, at) : std::next(at);
}

void Book::take_back(Pair& pair, Requests& from, std::uint64_t serial) {
  const auto first =
      std::ranges::find_if(from, [serial](const Request& r) { return r.serial >= serial; });
  if (first != from.end() && &from == &pair.sends) pair.unsignaled = first->unsignaled_before;
  take_back(from, serial);
}

// Completions of one queue arrive in request order, and each also ends earlier requests. A
// completion that is not in the book ends nothing: one of a provider's direct verbs, or of a
// destroyed queue pair whose number is reused. A failed completion does not report its operation.
// If both sides have a request with its wr_id, both are ended, since a false alarm would be worse.
void Book::completed(const ibv_cq* queue, std::uint32_t qp_num, std::uint64_t wr_id, bool ok,
                     unsigned opcode) {
  const auto known = pairs_by_number.find({queue->context, qp_num});
  if (known == pairs_by_number.end()) return;
  Pair& pair = *known->second;
  const bool receive = (opcode & IBV_WC_RECV) != 0;
  const auto up_to = [&](Requests& requests, auto fits) RKV_REQUIRES(lock) {
    const auto last = std::ranges::find_if(requests, fits);
    if (last == requests.end()) return;
    const auto stop = std::next(last);
    for (auto at = requests.begin(); at != stop;)
      at = end(requests, at);
  };
  if (pair.raw->send_cq == queue && (!ok || !receive)) {
    up_to(pair.sends, [&](const Request& r) { return r.wr_id == wr_id && (r.signaled || !ok); });
  }
  if (pair.raw->recv_cq != queue || (ok && !receive)) return;
  if (pair.shared == nullptr) {
    up_to(pair.receives, [&](const Request& r) { return r.wr_id == wr_id; });
    return;
  }
  // Receives of several queue pairs complete in any order.
  Requests& receives = pair.shared->receives;
  const auto one = std::ranges::find(receives, wr_id, &Request::wr_id);
  if (one != receives.end()) end(receives, one);
}

void Book::no_batch_open(const Pair& pair, const char* wish) const {
  if (!pair.batch_open) return;
  violated(fmt::format(
      "{} on queue pair {:#x} while a batch of it is open: submit or drop the batch first", wish,
      pair.raw->qp_num));
}

template <class Wanted>
const Request* Book::first_of_all(Wanted wanted) const {
  const auto look = [&wanted](const Requests& in) -> const Request* {
    const auto found = std::ranges::find_if(in, wanted);
    return found != in.end() ? &*found : nullptr;
  };
  for (const auto& [raw, pair] : pairs) {
    if (const Request* found = look(pair->sends)) return found;
    if (const Request* found = look(pair->receives)) return found;
  }
  // A shared receive queue without queue pairs gets no messages.
  for (const auto& [raw, queue] : shared) {
    if (queue->pairs == 0) continue;
    if (const Request* found = look(queue->receives)) return found;
  }
  return nullptr;
}

const Request* Book::naming(const ibv_context* context, std::uint32_t lkey) const {
  return first_of_all([&](const Request& request) {
    return request.context == context && !request.copied &&
           std::ranges::find(request.pieces, lkey, &Piece::lkey) != request.pieces.end();
  });
}

const Request* Book::naming(const ibv_mw& window) const {
  return first_of_all([&](const Request& request) {
    return request.context == window.context &&
           (request.window == &window ||
            (request.window_key != 0 && request.window_key == window.rkey));
  });
}

const Request* Book::holding(Place begin, std::uint64_t end) const {
  if (const Request* found = overlapping(written_, longest_written_, begin, end, kAny)) {
    return found;
  }
  return overlapping(read_, longest_read_, begin, end, kAny);
}

std::size_t Book::count() const {
  std::size_t out = 0;
  for (const auto& [raw, pair] : pairs)
    out += pair->sends.size() + pair->receives.size();
  for (const auto& [raw, queue] : shared)
    out += queue->receives.size();
  return out;
}

}  // namespace rkv::rdma::checked
