// Everybody tells everybody something, over TCP: how endpoints and remote memory get to the peers
// before there is RDMA between them.
//
//   RKV_ASSIGN_OR_RETURN(ExchangeListener door, ExchangeListener::open(cluster[rank], deadline));
//   RKV_ASSIGN_OR_RETURN(Exchange exchange,
//       Exchange::connect(cluster, rank, std::move(door), deadline));
//   RKV_ASSIGN_OR_RETURN(std::vector<Payload> all, exchange.all_gather(mine, deadline));
//
// Each rank is dialed by the lower ones and dials the higher ones, again and again until they are
// up. What comes from the network is checked before anything else is done with it: a frame says its
// length, which is bounded before memory is taken, and who it is from and for. A stranger -
// garbage, silence, another version, another cluster file, a rank that is here already - is turned
// away and told why, and does not end the exchange; an answer like that from a rank that we dialed
// does. There is no authentication: whoever can reach the port and knows the cluster file can take
// a rank's place. Use it in a network where that is nobody else.
//
// Frames, all numbers big-endian: length 4 (of what follows), magic 4, version 1, kind 1, zero 2,
// from 4, to 4, round 4, digest of the cluster 8, payload.
//
// No thread is started; calls block until their deadline at most. After an error an exchange is of
// no use. Thread safety: one thread at a time. Source: tcp(7), connect(2).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rkv/bytes.h"
#include "rkv/clock.h"
#include "rkv/export.h"
#include "rkv/rdma/group/cluster_file.h"
#include "rkv/result.h"

namespace rkv::rdma {

using Payload = std::vector<std::byte>;

struct ExchangeOptions {
  std::uint32_t max_payload_bytes = 64 * 1024;  // to one peer in one round; at most 16 MiB
  std::int64_t retry_ms = 50;                   // from one try to reach a peer to the next
  std::int64_t hello_ms = 2000;                 // how long who dials us may take to say who it is;
                                                // each of the two at most an hour
  std::uint32_t max_strangers = 64;             // such callers at a time; more wait
};

// A port that is open before its number is told to anybody.
class RKV_EXPORT ExchangeListener {
 public:
  // Port 0 takes a free one. kConflict: taken; kInvalidArgument: no address of this host.
  static Result<ExchangeListener> open(const HostPort& address, const Deadline& deadline);
  ExchangeListener(ExchangeListener&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ExchangeListener& operator=(ExchangeListener&& other) noexcept;
  ~ExchangeListener();
  std::uint16_t port() const;
  int fd() const { return fd_; }

 private:
  explicit ExchangeListener(int fd) : fd_(fd) {}
  int fd_;
};

namespace detail {
struct ExchangeState;
}

class RKV_EXPORT Exchange {
 public:
  // Returns when there is a connection to every other rank. kTimeout, where `problem`, when not
  // null, names the ranks that are missing and what was turned away last; kInvalidArgument: the
  // rank is not in the file, or another rank answers at an address; kVersionMismatch; kConflict:
  // the peer has another cluster file, or has our rank already; kCorrupt: what answers speaks
  // something else.
  static Result<Exchange> connect(const Cluster& cluster, std::uint32_t rank,
                                  ExchangeListener listener, const Deadline& deadline,
                                  const ExchangeOptions& options = {},
                                  std::string* problem = nullptr);
  Exchange(Exchange&&) noexcept;
  Exchange& operator=(Exchange&&) noexcept;
  ~Exchange();

  std::uint32_t rank() const;
  std::uint32_t size() const;
  // Callers that were turned away.
  std::uint32_t strangers() const;

  // One payload to each rank; what each rank has for us, our own included. All ranks call the same
  // functions in the same order. kTooLarge: ours is longer than the options say; kTimeout;
  // kDisconnected: a rank has left; kCorrupt: a rank sent what does not belong here.
  Result<std::vector<Payload>> all_to_all(std::span<const Bytes> to_each, const Deadline& deadline,
                                          std::string* problem = nullptr);
  Result<std::vector<Payload>> all_gather(Bytes mine, const Deadline& deadline,
                                          std::string* problem = nullptr);
  // Returns when all have called it.
  Status meet(const Deadline& deadline, std::string* problem = nullptr);

 private:
  explicit Exchange(std::unique_ptr<detail::ExchangeState> state);
  std::unique_ptr<detail::ExchangeState> state_;
};

}  // namespace rkv::rdma
