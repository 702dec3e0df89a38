// Settings of a client: each with its default, unit and cost.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace rkv {

// How a client waits for the network.
enum class Polling : unsigned char {
  kAdaptive,  // spin for a while, then sleep until an event: right for most programs
  kBusy,      // always spin: the lowest latency, one processor core per waiting client
  kEvent,     // always sleep: the least processor time, an interrupt per wait
};

// The transport that carries a client's READs and requests.
enum class Transport : unsigned char {
  // An RDMA device that reaches the server; else shared memory with a server of this host; else
  // TCP.
  kAuto,
  kVerbs,  // an RDMA device, or an error
  // Shared memory. The server must be on this host. This process's user must be the server's user
  // or root, or be in the group that the server's --shm-group names.
  kShm,
  kTcp,  // TCP, which is not RDMA: the server's processor answers READs
};

struct ClientOptions {
  // HOST:PORT of the server; IPv6 as [ADDRESS]:PORT. Several, separated by commas, are servers of
  // one replicated group: the client finds the one that is the primary, and follows it. All of them
  // are reached over the transport that is chosen for the first.
  std::string server = "127.0.0.1:7471";

  // Shown in the server's log; at most 24 bytes are sent.
  std::string name = "rkv";

  // This client's user, for a server with users (kvserver --users): the user's name, and the secret
  // of 64 hexadecimal digits that `kvserver user add` made. Both empty: the server must have no
  // users. With a user the client connects only to a server that knows the user's secret, and
  // `name` is not sent.
  std::string user{};
  std::string secret{};

  // Deadline of an operation unless the call names its own. It includes reconnecting.
  std::chrono::milliseconds timeout{5000};

  // Size of the cache of key locations, in bytes; 0 = off. A GET of a key whose place is cached
  // costs one READ instead of two. Three quarters hold index groups: about 9 bytes for each key of
  // the store at 80 % load. The rest holds single keys that were read: 16 bytes each. Address space
  // is reserved at once. Memory is allocated as the cache fills: about four times the bytes held,
  // up to this size.
  std::size_t cache_bytes = std::size_t{64} << 20;

  // GETs that multi_get keeps in flight, 1 to 1024. About 4 KiB of registered memory each.
  std::uint32_t reads_in_flight = 32;

  // Requests (writes and two-sided GETs) in flight, 1 to 256; the server may grant fewer. About
  // 133 KiB of registered memory each.
  std::uint16_t requests_in_flight = 16;

  // Limit of registered memory for values longer than 128 KiB on their way in or out, in bytes: 16
  // MiB or more. It is allocated when it is first needed. It bounds how many long values multi_get
  // and multi_put have in flight.
  std::size_t large_bytes = std::size_t{32} << 20;

  Polling polling = Polling::kAdaptive;

  Transport transport = Transport::kAuto;

  // RDMA device, as `rdma link` lists it; "" = the device that routes to the server.
  std::string device{};
  std::uint8_t port = 0;  // port of the device; 0 = any active port
  int gid_index = -1;     // -1 = let the connection manager choose

  // Wait between attempts to reconnect. It doubles from the first to the longest. Each wait is
  // shortened by a random part of up to one half, so that many clients do not reconnect at once.
  std::chrono::milliseconds first_backoff{10};
  std::chrono::milliseconds longest_backoff{1000};

  // Longest time of one attempt to connect; the operation's deadline may end it earlier.
  std::chrono::milliseconds connect_timeout{2000};

  // If true, Client::connect() makes attempts until `timeout`, as operations do, so that a program
  // may start before its server is ready. If false, it makes one attempt. A Cluster always makes
  // one attempt for each server, and starts without the servers that do not answer.
  bool repeat_connect = true;
};

}  // namespace rkv
