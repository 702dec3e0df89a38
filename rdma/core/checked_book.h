// The book of checked mode: which request has which bytes. checked_book.cc has the rules,
// checked_provider.cc what fills it. Not public.
//
// Invariants: (1) a request is in the book from before the provider sees it until its completion
// has been read; so what another thread completes is never unknown. (2) Claims that the device
// writes do not overlap any other. (3) No function of a provider is called while the book is
// locked.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rkv/rdma/checked.h"

namespace rkv::rdma::checked {

// What an operation does with its pieces.
struct Operation {
  const char* name;
  bool writes = false;  // the device writes them
  bool fences = false;  // a fenced request waits for it: READ and atomics
  bool touches = true;  // false: names a region, but not its bytes (bind)
};

struct Piece {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint32_t lkey = 0;
};

struct Pair;
struct Request;

// Bytes in the hand of the device. `space` is 0 for those that the CPU can address.
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
  bool copied = false;  // inline: its bytes are taken at once
  std::vector<Piece> pieces;
  const ibv_mw* window = nullptr;
  std::uint32_t window_key = 0;

  // Filled in when it is entered.
  std::uint64_t serial = 0;
  std::uint64_t unsignaled_before = 0;
  const ibv_context* context = nullptr;
  const Pair* pair = nullptr;      // nullptr: of a shared receive queue
  ibv_cq* completes_on = nullptr;  // nullptr: not counted there
  std::vector<Claims::iterator> written, read;
};
using Requests = std::list<Request>;

struct Region {
  const ibv_mr* raw = nullptr;
  std::uint32_t domain = 0;  // ibv_pd::handle: of a parent domain that of what it stands for
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t cpu = 0;  // 0: the CPU cannot address it
  bool anywhere = false;
  bool overlaps = false;
};

struct SharedReceives {
  ibv_srq* raw = nullptr;
  std::size_t pairs = 0;  // queue pairs that live
  Requests receives;
};

struct Pair {
  ibv_qp* raw = nullptr;
  ibv_qp_ex original{};  // its functions; fixed before the first request
  SharedReceives* shared = nullptr;
  std::uint32_t send_length = 0;
  std::uint64_t unsignaled = 0;  // in a row, the last ones posted
  bool unique_ids = false;
  bool batch_open = false;
  Requests batch;  // of the open batch: not posted yet
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
  std::mutex lock;  // of everything below

  std::map<std::pair<const ibv_context*, std::uint32_t>, Region> regions;  // by lkey
  std::unordered_map<const ibv_qp*, std::unique_ptr<Pair>> pairs;
  std::map<std::pair<const ibv_context*, std::uint32_t>, Pair*> pairs_by_number;
  std::unordered_map<const ibv_srq*, std::unique_ptr<SharedReceives>> shared;
  std::unordered_map<const ibv_cq*, std::unique_ptr<Queue>> queues;
  std::unordered_map<const ibv_context*, ibv_context_ops> originals;
  Options options;

  // Checks them and takes them in, at the end of the pair's sends or receives, or of the shared
  // receives. Aborts on a violation. Returns the serial of the first, for take_back().
  std::uint64_t enter(Pair& pair, Requests& fresh, bool receives);
  std::uint64_t enter(SharedReceives& shared, Requests& fresh);
  // The provider has refused what has this serial or a later one.
  void take_back(Pair& pair, Requests& from, std::uint64_t serial);
  void take_back(Requests& from, std::uint64_t serial);

  // A completion was read.
  void completed(const ibv_cq* queue, std::uint32_t qp_num, std::uint64_t wr_id, bool ok,
                 unsigned opcode);
  void end_all(Requests& requests);
  void no_batch_open(const Pair& pair, const char* wish) const;

  // The first request that names the region or the window, or that has some of the bytes.
  const Request* naming(const ibv_context* context, std::uint32_t lkey) const;
  const Request* naming(const ibv_mw& window) const;
  const Request* holding(Place begin, std::uint64_t end) const;
  std::size_t count() const;

 private:
  void admit(Request& request, const ibv_pd* domain);
  void check_starvation(Pair& pair, const Request& request) const;
  void check_unique(const Requests& others, const Request& request) const;
  const Region& region_of(const Request& request, const Piece& piece, const ibv_pd* domain) const;
  void claim(Request& request, const Region& region, const Piece& piece);
  Requests::iterator end(Requests& requests, Requests::iterator one);
  template <class Wanted>
  const Request* first_of_all(Wanted wanted) const;
  Claims written_;
  Claims read_;
  // Of any claim ever: how far before a place one that reaches it can begin.
  std::uint64_t longest_written_ = 0;
  std::uint64_t longest_read_ = 0;
  std::uint64_t serial_ = 0;
};

Book& book();
std::string describe(const Request& request);
[[noreturn]] void violated(const std::string& sentence);
// Gives queue pairs, queues and the context functions that keep the book.
void wrap_context(Book& book, ibv_context* context);
void wrap_pair(Pair& pair, ibv_qp_ex* extended);
void wrap_queue(Queue& queue, ibv_cq_ex* extended);

}  // namespace rkv::rdma::checked
