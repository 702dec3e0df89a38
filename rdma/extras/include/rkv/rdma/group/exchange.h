// Exchanges data between all ranks over TCP. It carries endpoints and remote memory descriptors to
// the peers before RDMA works between them.
//
//   RKV_ASSIGN_OR_RETURN(ExchangeListener listener,
//       ExchangeListener::open(cluster[rank], deadline));
//   RKV_ASSIGN_OR_RETURN(Exchange exchange,
//       Exchange::connect(cluster, rank, std::move(listener), deadline));
//   RKV_ASSIGN_OR_RETURN(std::vector<Payload> all, exchange.all_gather(mine, deadline));
//
// A rank connects to the higher ranks, retrying every `retry_ms` until each is up, and accepts
// connections of the lower ones. Network input is validated first. A frame has its length, which is
// checked before memory is allocated, its sender and its receiver.
//
// A caller is a process that connects to this rank. An invalid caller is disconnected and does not
// end the exchange. A caller with another version, another cluster file, a wrong rank or a rank
// that is already connected receives a refusal with the reason. A caller that sends invalid data or
// nothing is disconnected without a reason. A refusal or invalid data from a rank that this rank
// connected to ends the exchange.
//
// There is no authentication: any process that reaches the port and has the cluster file can
// connect as a rank. Use the exchange only in a network without untrusted processes.
//
// Frames, all numbers big-endian: length 4 (of the rest), magic 4, version 1, kind 1, zero 2, from
// 4, to 4, round 4 (in a greeting: the number of ranks), digest of the cluster 8, payload.
//
// The exchange starts no thread. Calls block until their deadline at most. After any error but
// kTooLarge every later call fails. Thread safety: one thread at a time. Source: tcp(7),
// connect(2).
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
  std::int64_t retry_ms = 50;                   // between two attempts to connect; 1 to an hour
  std::int64_t hello_ms = 2000;                 // limit for a caller's greeting; 1 to an hour
  std::uint32_t max_strangers = 64;  // callers that have not greeted yet; further ones wait
};

// An open port. Its number is known before any peer connects.
class RKV_EXPORT ExchangeListener {
 public:
  // Port 0 takes a free port. kConflict: the port is taken; kInvalidArgument: not an address of
  // this host.
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
  // Returns when this rank is connected to every other rank. kTimeout: `problem`, if not null,
  // names the missing ranks and the reason of the last refusal. kInvalidArgument: `rank` is not in
  // the file, or another rank answers at an address. kVersionMismatch. kConflict: the peer has
  // another cluster file, or is already connected to a process with this rank. kCorrupt: the peer
  // sent data of another protocol.
  static Result<Exchange> connect(const Cluster& cluster, std::uint32_t rank,
                                  ExchangeListener listener, const Deadline& deadline,
                                  const ExchangeOptions& options = {},
                                  std::string* problem = nullptr);
  Exchange(Exchange&&) noexcept;
  Exchange& operator=(Exchange&&) noexcept;
  ~Exchange();

  std::uint32_t rank() const;
  std::uint32_t size() const;
  // The number of callers that were refused or dropped.
  std::uint32_t strangers() const;

  // Sends one payload to each rank; returns the payloads from all ranks, by rank, this rank's own
  // included. All ranks call the same functions in the same order. Blocks. kTooLarge: a payload is
  // longer than max_payload_bytes; kTimeout; kDisconnected: a rank has left; kCorrupt: a rank sent
  // an unexpected frame.
  Result<std::vector<Payload>> all_to_all(std::span<const Bytes> to_each, const Deadline& deadline,
                                          std::string* problem = nullptr);
  Result<std::vector<Payload>> all_gather(Bytes mine, const Deadline& deadline,
                                          std::string* problem = nullptr);
  // Blocks until all ranks have called it. Errors as all_to_all().
  Status meet(const Deadline& deadline, std::string* problem = nullptr);

 private:
  explicit Exchange(std::unique_ptr<detail::ExchangeState> state);
  std::unique_ptr<detail::ExchangeState> state_;
};

}  // namespace rkv::rdma
