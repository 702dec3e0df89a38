// Settings of a client: each with its default, its unit and what it costs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace rkv {

// How a client waits for the network.
enum class Polling : unsigned char {
  kAdaptive,  // spin for a while, then sleep until an event: right for almost everybody
  kBusy,      // always spin: the lowest latency, one processor core per waiting client
  kEvent,     // always sleep: the least processor time, an interrupt per wait
};

// What carries a client's READs and requests.
enum class Transport : unsigned char {
  kAuto,   // an RDMA device that reaches the server; else shared memory if it is on this host
  kVerbs,  // an RDMA device, or an error
  // Shared memory. The server is on this host, and this process's user is the server's, is root, or
  // is in the group that the server's --shm-group names.
  kShm,
};

struct ClientOptions {
  // HOST:PORT of the server; IPv6 as [ADDRESS]:PORT.
  std::string server = "127.0.0.1:7471";

  // Shown in the server's log; at most 24 bytes are sent.
  std::string name = "rkv";

  // Deadline of an operation unless the call names its own. It includes reconnecting.
  std::chrono::milliseconds timeout{5000};

  // Cache of where keys are, in bytes. A GET of a key whose place is cached costs one READ instead
  // of two. Three quarters hold index groups, about 9 bytes for each key of the store at 80 % load;
  // the rest single keys that were read, 16 bytes each. Address space is reserved at once, memory
  // taken as it fills: some four times what it holds, up to this.
  // 0 = off.
  std::size_t cache_bytes = std::size_t{64} << 20;

  // GETs that multi_get keeps in flight, 1 to 1024. About 4 KiB of registered memory each.
  std::uint32_t reads_in_flight = 32;

  // Requests (writes and two-sided GETs) in flight, 1 to 256; the server may grant fewer. About
  // 136 KiB of registered memory each.
  std::uint16_t requests_in_flight = 16;

  // Registered memory for values longer than 128 KiB on their way in or out, in bytes, made when it
  // is first needed: 16 MiB or more. Bounds how many of them multi_get and multi_put have under
  // way.
  std::size_t large_bytes = std::size_t{32} << 20;

  Polling polling = Polling::kAdaptive;

  Transport transport = Transport::kAuto;

  // RDMA device, as `rdma link` lists them; "" = the one that routes to the server.
  std::string device{};
  std::uint8_t port = 0;  // of the device; 0 = any active one
  int gid_index = -1;     // -1 = let the connection manager choose

  // Wait between attempts to reconnect: doubles from the first to the longest, and each is
  // shortened by a random part of up to one half, so that many clients do not come back at once.
  std::chrono::milliseconds first_backoff{10};
  std::chrono::milliseconds longest_backoff{1000};

  // One attempt to connect takes no longer than this (nor longer than the operation's deadline).
  std::chrono::milliseconds connect_timeout{2000};

  // Whether Client::connect() makes attempts until `timeout`, as operations do, so that a program
  // may start before its server is ready; off: one attempt. A Cluster begins without those of its
  // servers that do not answer the first.
  bool repeat_connect = true;
};

}  // namespace rkv
