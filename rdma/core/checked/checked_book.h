// The records of checked mode: the requests in flight and the bytes each of them uses.
// checked_book.cc has the rules; checked_provider.cc adds and removes requests. Not public.
//
// Invariants: (1) A request is in the book from before the provider sees it until its completion
// has been read. So a completion read by another thread is never unknown. (2) A claim that the
// device writes overlaps no other claim, except that of a fenced request after READs and atomics of
// its queue pair. (3) No provider function is called while the book is locked.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "rkv/rdma/checked.h"

namespace rkv::rdma::checked {

// How an operation uses its pieces.
struct Operation {
  const char* name;
  bool writes = false;  // the device writes the pieces
  bool fences = false;  // a fenced request waits for this operation: READ and atomics
  bool touches = true;  // false: names a region but does not access its bytes (bind)
};

struct Piece {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint32_t lkey = 0;
};

struct Pair;
struct Request;

// Bytes that the device may access. `space` is 0 for bytes that the CPU can address.
struct Claim {
  std::uint64_t end = 0;
  const Request* owner = nullptr;
};
using Place = std::pair<std::uint64_t, std::uint64_t>;  // space, beginning
using Claims = std::multimap<Place, Claim>;

struct Request {
  Operation operation{};
  std::uint64_t wr_id = 0;
  bool signaled = false;
  bool fenced = false;
  bool copied = false;  // inline: its bytes are copied at once
  std::vector<Piece> pieces;
  const ibv_mw* window = nullptr;
  std::uint32_t window_key = 0;

  // Set by Book::enter().
  std::uint64_t serial = 0;
  std::uint64_t unsignaled_before = 0;
  const ibv_context* context = nullptr;
  const Pair* pair = nullptr;      // nullptr: request of a shared receive queue
  ibv_cq* completes_on = nullptr;  // nullptr: not counted against a queue
  std::vector<Claims::iterator> written, read;
};
using Requests = std::list<Request>;

struct Region {
  const ibv_mr* raw = nullptr;
  std::uint32_t domain = 0;  // ibv_pd::handle
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t cpu = 0;  // CPU address of the beginning; 0: the CPU cannot address it
  bool overlaps = false;
};

struct SharedReceives {
  ibv_srq* raw = nullptr;
  std::size_t pairs = 0;  // live queue pairs
  Requests receives;
};

struct Pair {
  ibv_qp* raw = nullptr;
  ibv_qp_ex original{};  // the provider's functions; fixed before the first request
  SharedReceives* shared = nullptr;
  std::uint32_t send_length = 0;
  std::uint64_t unsignaled = 0;  // consecutive unsignaled requests, up to the last one posted
  bool unique_ids = false;
  bool batch_open = false;
  Requests batch;  // requests of the open batch, not posted yet
  Requests sends;
  Requests receives;
};

struct Queue {
  int (*start_poll)(ibv_cq_ex*, ibv_poll_cq_attr*) = nullptr;
  int (*next_poll)(ibv_cq_ex*) = nullptr;
  std::uint64_t posted = 0;  // requests in flight that complete here
};

class Book {
 public:
  Mutex lock;

  // By lkey.
  std::map<std::pair<const ibv_context*, std::uint32_t>, Region> regions RKV_GUARDED_BY(lock);
  std::unordered_map<const ibv_qp*, std::unique_ptr<Pair>> pairs RKV_GUARDED_BY(lock);
  std::map<std::pair<const ibv_context*, std::uint32_t>, Pair*> pairs_by_number
      RKV_GUARDED_BY(lock);
  std::unordered_map<const ibv_srq*, std::unique_ptr<SharedReceives>> shared RKV_GUARDED_BY(lock);
  std::unordered_map<const ibv_cq*, std::unique_ptr<Queue>> queues RKV_GUARDED_BY(lock);
  std::unordered_map<const ibv_context*, ibv_context_ops> originals RKV_GUARDED_BY(lock);
  Options options RKV_GUARDED_BY(lock);

  // Checks the requests and moves them to the end of the pair's sends or receives, or of the shared
  // receives. Aborts on a violation. Returns the serial of the first, for take_back().
  std::uint64_t enter(Pair& pair, Requests& fresh, bool receives) RKV_REQUIRES(lock);
  std::uint64_t enter(SharedReceives& shared, Requests& fresh) RKV_REQUIRES(lock);
  // Removes requests that the provider has refused: those with this serial or a later one.
  void take_back(Pair& pair, Requests& from, std::uint64_t serial) RKV_REQUIRES(lock);
  void take_back(Requests& from, std::uint64_t serial) RKV_REQUIRES(lock);

  // Removes the requests that a completion ends.
  void completed(const ibv_cq* queue, std::uint32_t qp_num, std::uint64_t wr_id, bool ok,
                 unsigned opcode) RKV_REQUIRES(lock);
  void end_all(Requests& requests) RKV_REQUIRES(lock);
  void no_batch_open(const Pair& pair, const char* wish) const RKV_REQUIRES(lock);

  // Return the first request that names the region or the window, or that has a claim on some of
  // the bytes; nullptr if there is none.
  const Request* naming(const ibv_context* context, std::uint32_t lkey) const RKV_REQUIRES(lock);
  const Request* naming(const ibv_mw& window) const RKV_REQUIRES(lock);
  const Request* holding(Place begin, std::uint64_t end) const RKV_REQUIRES(lock);
  std::size_t count() const RKV_REQUIRES(lock);

 private:
  void admit(Request& request, const ibv_pd* domain) RKV_REQUIRES(lock);
  void check_starvation(Pair& pair, const Request& request) const RKV_REQUIRES(lock);
  void check_unique(const Requests& others, const Request& request) const RKV_REQUIRES(lock);
  const Region& region_of(const Request& request, const Piece& piece, const ibv_pd* domain) const
      RKV_REQUIRES(lock);
  void claim(Request& request, const Region& region, const Piece& piece) RKV_REQUIRES(lock);
  Requests::iterator end(Requests& requests, Requests::iterator one) RKV_REQUIRES(lock);
  template <class Wanted>
  const Request* first_of_all(Wanted wanted) const RKV_REQUIRES(lock);
  Claims written_ RKV_GUARDED_BY(lock);
  Claims read_ RKV_GUARDED_BY(lock);
  // The length of the longest claim so far: it bounds how far before a place an overlapping claim
  // can begin.
  std::uint64_t longest_written_ RKV_GUARDED_BY(lock) = 0;
  std::uint64_t longest_read_ RKV_GUARDED_BY(lock) = 0;
  std::uint64_t serial_ RKV_GUARDED_BY(lock) = 0;
};

Book& book();
std::string describe(const Request& request);
[[noreturn]] void violated(const std::string& sentence);
// Replace the functions of contexts, queue pairs and queues by those that keep the book.
void wrap_context(Book& book, ibv_context* context) RKV_REQUIRES(book.lock);
void wrap_pair(Pair& pair, ibv_qp_ex* extended);
void wrap_queue(Queue& queue, ibv_cq_ex* extended);

}  // namespace rkv::rdma::checked
